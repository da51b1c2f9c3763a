// The lines of an answer, one after the other, as they arrive.

/** Calls `take` with each line that is not empty, until the answer ends. */
export async function eachLine(response: Response, take: (line: string) => void): Promise<void> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") take(line);
  }
}
