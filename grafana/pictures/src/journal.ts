/** What was asked of Prometheus while a board was drawn, and what came of it. */
export interface Query {
  /** The title of the panel, or the name of the variable or annotation, that asked. */
  asker: string;
  expression: string;
}

export interface QueryError extends Query {
  error: string;
}

export class Journal {
  readonly queries: Query[] = [];
  readonly empty: Query[] = [];
  readonly errors: QueryError[] = [];
  private open = 0;
  private changed = performance.now();

  /** Milliseconds since the last question or answer; 0 while one is out. */
  get quiet(): number {
    return this.open ? 0 : performance.now() - this.changed;
  }

  /** Notes `query` and the outcome of `answer`, which it hands on, failures included. */
  async follow<T>(query: Query, answer: Promise<T>, isEmpty: (result: T) => boolean): Promise<T> {
    this.queries.push(query);
    this.open += 1;
    try {
      const result = await answer;
      if (isEmpty(result)) {
        this.empty.push(query);
      }
      return result;
    } catch (error) {
      this.errors.push({ ...query, error: error instanceof Error ? error.message : String(error) });
      throw error;
    } finally {
      this.open -= 1;
      this.changed = performance.now();
    }
  }
}
