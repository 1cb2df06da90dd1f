// Suggests names for an unknown one. Working pages do not need it, so it is part of files that are fetched later.

/** Returns the option that is most similar to an unknown name, by common pairs of letters; all options if none is similar. */
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
