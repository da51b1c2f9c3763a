/** The server's refusal of a request, with a hint. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}
