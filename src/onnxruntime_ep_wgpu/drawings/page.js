"use strict";
const groups = JSON.parse(document.getElementById("boxes").textContent);
const facts = document.getElementById("facts");
const text = document.getElementById("text");
const show = (box) => {
  const { facts: known, text: wgsl } = groups[box.dataset.group][box.dataset.box];
  document.querySelectorAll(".chosen").forEach((it) => it.classList.remove("chosen"));
  box.classList.add("chosen");
  facts.replaceChildren();
  for (const [name, value] of Object.entries(known)) {
    if (!value) continue;
    facts.appendChild(document.createElement("dt")).textContent = name;
    facts.appendChild(document.createElement("dd")).textContent = value;
  }
  text.textContent = wgsl;
};
for (const box of document.querySelectorAll("g.kernel")) {
  box.addEventListener("click", () => show(box));
  box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show(box); } });
}
