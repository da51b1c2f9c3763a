// Forecasts that were asked for: a switch that begins afterwards is compared with its forecast.
import type { Plan } from "./wire";

const plans = new Map<number, { plan: Plan; at: number }>();

export function remember(plan: Plan, at: number): void {
  plans.set(plan.to, { plan, at });
}

/** The last forecast of a switch that began at this time; not a forecast of a switch long before. */
export function forecastOf(generation: number, began: number): Plan | null {
  const found = plans.get(generation);
  return found && found.at <= began + 3000 && found.at > began - 3_600_000 ? found.plan : null;
}
