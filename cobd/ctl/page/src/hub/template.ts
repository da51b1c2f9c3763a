// What a template offers, with its parents and partials; docs/templates.md has all keys. Pure, without the browser.

export interface Template {
  description?: string;
  parent?: string;
  includes?: string[];
  compatibility?: { services?: string[]; hardwaretypes?: string[]; imagetypes?: string[] };
  defaults?: { services?: string[]; provider?: string; hardwaretype?: string; imagetype?: string; config?: Record<string, unknown> };
}

const joined = (...lists: (string[] | undefined)[]) => [...new Set(lists.flatMap((names) => names ?? []))];

/** A template over those that it inherits from: lists are joined, other keys replaced. */
export function over(base: Template, own: Template): Template {
  const [permitted, added] = [base.compatibility, own.compatibility];
  return {
    ...own,
    compatibility: {
      services: joined(permitted?.services, added?.services),
      hardwaretypes: joined(permitted?.hardwaretypes, added?.hardwaretypes),
      imagetypes: joined(permitted?.imagetypes, added?.imagetypes),
    },
    defaults: {
      ...base.defaults,
      ...own.defaults,
      services: joined(base.defaults?.services, own.defaults?.services),
      config: { ...base.defaults?.config, ...own.defaults?.config },
    },
  };
}

/** The template with its parent and its partials. The catalogue refuses circles; each name is read once in any case. */
export async function whole(name: string, read: (name: string) => Promise<Template>, seen = new Set([name])): Promise<Template> {
  const own = await read(name);
  let base: Template = {};
  for (const other of [own.parent, ...(own.includes ?? [])]) {
    if (!other || seen.has(other)) continue;
    base = over(base, await whole(other, read, seen.add(other)));
  }
  return over(base, own);
}

/** The services that a template offers, its defaults first: a template that permits no certain ones permits all. */
export function offered({ compatibility, defaults }: Template, all: string[]): string[] {
  const permitted = compatibility?.services ?? [];
  return joined(defaults?.services, permitted.length > 0 ? permitted : all);
}
