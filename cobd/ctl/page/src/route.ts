// Addresses of views: `#/objects?class=failed`. Pure but for `here`, `go` and `link`.
import { signal } from "@preact/signals";

export interface Route {
  view: string;
  /** The rest of the path: the id of an object, the number of a generation. */
  rest: string;
  params: URLSearchParams;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const question = text.indexOf("?");
  const path = question < 0 ? text : text.slice(0, question);
  const params = new URLSearchParams(question < 0 ? "" : text.slice(question + 1));
  const slash = path.indexOf("/");
  const view = slash < 0 ? path : path.slice(0, slash);
  const rest = slash < 0 ? "" : path.slice(slash + 1).split("/").map(decode).join("/");
  return { view, rest, params };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(view: string, rest = "", params?: URLSearchParams | Record<string, string>): string {
  const path = rest ? `${view}/${rest.split("/").map(encodeURIComponent).join("/")}` : view;
  const query = new URLSearchParams(params ?? {}).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

export const cobAddress = (id: string) => address("cob", id);
export const hostAddress = (name: string) => address("host", name);

export const here = signal<Route>({ view: "", rest: "", params: new URLSearchParams() });

/** Shows the view of the address, now and after each change of it. */
export function follow(): void {
  const read = () => (here.value = parse(location.hash));
  addEventListener("hashchange", read);
  read();
}

export function go(to: string): void {
  location.hash = to;
}

/** Changes the parameters of the address without a new entry in the browser's history. */
export function setParams(params: URLSearchParams): void {
  const { view, rest } = here.value;
  history.replaceState(null, "", address(view, rest, params));
  here.value = { view, rest, params };
}
