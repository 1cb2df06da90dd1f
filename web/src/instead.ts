// What an unknown name may mean. Working pages have none, so it is part of files that are fetched later.

/** Which option an unknown name means, by the pairs of letters that both have; all options where none is like it. */
export function instead(name: string, names: readonly string[]): string {
  const pairs = (it: string): Set<string> => new Set(Array.from(it.slice(0, 100), (_, k) => it.slice(k, k + 2).toLowerCase()));
  const wanted = pairs(name);
  const likeness = (other: string): number => {
    const found = pairs(other);
    return (2 * [...found].filter((it) => wanted.has(it)).length) / (wanted.size + found.size);
  };
  const [best] = [...names].sort((a, b) => likeness(b) - likeness(a));
  return best && likeness(best) >= 0.55 ? ` (did you mean '${best}'?)` : `; the options are ${names.join(', ')}`;
}
