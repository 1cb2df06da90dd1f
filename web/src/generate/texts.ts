// Texts that are generated together: the tokens of each, and which have ended.

export type Step = readonly (number | undefined)[];

export class Texts {
  readonly made: readonly number[][];
  readonly #ended: boolean[];

  constructor(
    count: number,
    private readonly stopTokens: readonly number[],
    private readonly stop: ((tokens: readonly number[], text: number) => boolean) | undefined,
  ) {
    this.made = Array.from({ length: count }, () => []);
    this.#ended = Array<boolean>(count).fill(false);
  }

  /** Whether every text has ended. */
  get over(): boolean {
    return this.#ended.every((it) => it);
  }

  /** Adds a token to each text. Returns those that belong to it, undefined if it has ended. */
  add(tokens: Step): Step {
    return tokens.map((token, text) => {
      if (this.#ended[text]) return undefined;
      if (token === undefined || this.stopTokens.includes(token)) {
        this.#ended[text] = true;
        return undefined;
      }
      const made = this.made[text]!;
      made.push(token);
      if (this.stop?.(made, text)) this.#ended[text] = true;
      return token;
    });
  }
}
