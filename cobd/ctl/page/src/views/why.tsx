// Why an object is in its state: a sentence for each step, down to the first cause.
import { useAsk } from "../load";
import { CobLink, Loading, Mark, Text, Trouble } from "../parts";
import { table, tick } from "../store";
import { UNKNOWN } from "../table";
import type { Explained } from "../wire";
import { span } from "../words";
import { Decide } from "./decide";

export function Why({ id, refresh }: { id: string; refresh: string }) {
  const explained = useAsk<Explained>("explain", { what: id }, refresh);
  const document = explained.value?.answer;
  return (
    <>
      {explained.loading && <Loading />}
      <Trouble error={explained.error} hints={explained.hints} again={explained.again} />
      {document && <Explanation document={document} />}
    </>
  );
}

/** A chain up to this length needs no summary. */
const SHORT = 6;

/** An explanation: the sentence, and a step for each object down to the first cause. */
export function Explanation({ document }: { document: Explained }) {
  tick.value;
  const objects = table.value!;
  const classOf = (cob: string) => objects.cls[objects.index(cob)] ?? UNKNOWN;
  const stateOf = (cob: string) => objects.stateName(objects.state[objects.index(cob)] ?? -1);
  const id = document.cob;
  return (
        <>
          {(document.chain.length === 1 || document.chain.length > SHORT) && (
            <p class="why-sentence">
              <Text without={document.chain.length === 1 ? id : ""}>{document.answer}</Text>
            </p>
          )}
          {(document.chain.length > 1 || document.first_cause.hint !== "") && (
            <ol class="chain">
              {steps(document).map((step, at, all) => (
                <li key={`${step.cob}${at}`} class={at === all.length - 1 ? "first-cause" : ""}>
                  <Mark cls={classOf(step.cob)} />
                  <div class="grow">
                    <p>
                      <CobLink id={step.cob} /> <Text without={step.cob}>{step.words}</Text>
                      {step.forMs > 0 && <span class="muted number"> for {span(step.forMs)}</span>}
                    </p>
                    {step.others.length > 0 && (
                      <p class="muted">
                        Also:{" "}
                        {step.others.map((words, other) => (
                          <span key={words}>
                            {other > 0 && "; "}
                            <Text>{words}</Text>
                          </span>
                        ))}
                      </p>
                    )}
                    {at === all.length - 1 && (
                      <>
                        <p class="first-cause-words">First cause</p>
                        {document.first_cause.hint && (
                          <p class="hint">
                            <Text>{document.first_cause.hint}</Text>
                          </p>
                        )}
                        {stateOf(step.cob) === "conflict" && <Decide id={step.cob} />}
                      </>
                    )}
                  </div>
                </li>
              ))}
            </ol>
          )}
        </>
  );
}

export interface Step {
  cob: string;
  words: string;
  forMs: number;
  /** Further waits and causes of the object. */
  others: string[];
}

/** The steps from the object of the question to the first cause. */
export function steps(document: Explained): Step[] {
  const chain = document.chain.length > 0 ? document.chain : [document.cob];
  return chain.map((cob, at) => {
    const told = document.cobs.find((candidate) => candidate.id === cob);
    const next = chain[at + 1];
    const waits = told?.waits ?? [];
    if (next !== undefined) {
      const wait = waits.find((candidate) => candidate.cob === next);
      const others = waits.filter((candidate) => candidate !== wait).map((candidate) => candidate.text);
      return { cob, words: wait?.text ?? `waits for ${next}`, forMs: (wait?.for_ns ?? 0) / 1e6, others: others.slice(0, 5) };
    }
    const others = (told?.causes ?? []).map((cause) => cause.text).filter((text) => text !== document.first_cause.text);
    return { cob, words: document.first_cause.text, forMs: 0, others: others.slice(0, 5) };
  });
}
