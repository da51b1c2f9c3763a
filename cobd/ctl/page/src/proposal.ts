// Orders before they are given: the dialog shows the effect and asks.
import { signal } from "@preact/signals";
import { give, type Order } from "./api";
import { Refusal } from "./refusal";

/** The orders that wait for an answer: usually one; several of the same sort are given one after the other. */
export const proposal = signal<Order[] | null>(null);
export const drawer = signal(false);
/** The last refusal of an order. */
export const refused = signal<{ words: string; hint: string } | null>(null);

/** Orders that change no service by themselves are given at once; the others are shown first. */
export function propose(order: Order): void {
  if (order.order === "retry" || order.order === "check") void carryOut(order);
  else proposal.value = [order];
}

export async function carryOut(order: Order): Promise<boolean> {
  refused.value = null;
  try {
    await give(order);
    drawer.value = true;
    return true;
  } catch (error) {
    const hint = error instanceof Refusal ? error.hint : "";
    refused.value = { words: error instanceof Error ? error.message : String(error), hint };
    drawer.value = true;
    return false;
  }
}
