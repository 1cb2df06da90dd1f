// Decodes tokens to text as they arrive. In: a tokenizer, @huggingface/tokenizers or any other that decodes, and tokens. Out:
// pieces.

/** The part of a tokenizer that is used. */
export interface Decoder {
  decode(tokens: number[], options?: { skip_special_tokens?: boolean }): string;
}

/**
 * Yields the text of tokens in pieces, as soon as they are final: no partial characters. Ends before the first of the texts of
 * `stop`, no part of which is returned.
 */
export async function* streamText(
  tokenizer: Decoder, tokens: AsyncIterable<number> | Iterable<number>, { stop = [] }: { readonly stop?: readonly string[] } = {},
): AsyncGenerator<string, void, void> {
  const seen: number[] = [];
  let text = '';
  let told = 0;
  for await (const token of tokens) {
    seen.push(token);
    text = tokenizer.decode(seen, { skip_special_tokens: true });
    const found = stop.map((it) => text.indexOf(it, Math.max(0, told - it.length))).filter((at) => at >= 0);
    const ended = found.length > 0;
    const certain = ended ? Math.min(...found) : text.endsWith('\ufffd') ? told : text.length - pending(text, stop);
    if (certain > told) {
      yield text.slice(told, certain);
      told = certain;
    }
    if (ended) return;
  }
  if (text.length > told) yield text.slice(told);
}

/** The number of characters at the end that may begin a stop text. */
function pending(text: string, stop: readonly string[]): number {
  let most = 0;
  for (const it of stop) {
    for (let length = Math.min(it.length - 1, text.length); length > most; length--) {
      if (text.endsWith(it.slice(0, length))) most = length;
    }
  }
  return most;
}
