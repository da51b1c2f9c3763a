// A provider of OpenID Connect for tests: whoever presses the button is `ann`. Prints its address and serves until it is ended.
//   node browser/provider.mjs
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";

const codes = new Map();
const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");

const server = createServer(async (request, response) => {
  const issuer = `http://${request.headers.host}`;
  const { pathname, searchParams } = new URL(request.url, issuer);
  const json = (status, value) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
  if (pathname === "/.well-known/openid-configuration") {
    return json(200, { issuer, authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` });
  }
  if (pathname === "/authorize") {
    const code = randomBytes(16).toString("hex");
    codes.set(code, Object.fromEntries(searchParams));
    const back = (words) => `${searchParams.get("redirect_uri")}?${new URLSearchParams({ ...words, state: searchParams.get("state") })}`;
    const link = (words, text) => `<p><a href="${back(words).replaceAll("&", "&amp;")}">${text}</a></p>`;
    const page = link({ code }, "I am ann") + link({ error: "access_denied" }, "Cancel");
    return response.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><title>Provider</title>${page}`);
  }
  if (pathname === "/token" && request.method === "POST") {
    let text = "";
    for await (const piece of request) text += piece;
    const words = new URLSearchParams(text);
    const asked = codes.get(words.get("code"));
    codes.delete(words.get("code"));
    const challenge = createHash("sha256").update(words.get("code_verifier") ?? "").digest("base64url");
    if (asked?.code_challenge !== challenge || asked.redirect_uri !== words.get("redirect_uri")) {
      return json(400, { error: "invalid_grant" });
    }
    const claims = { iss: issuer, aud: asked.client_id, exp: Math.floor(Date.now() / 1000) + 300, nonce: asked.nonce, preferred_username: "ann" };
    return json(200, { token_type: "Bearer", access_token: "x", id_token: `${part({ alg: "none" })}.${part(claims)}.x` });
  }
  return json(404, {});
});
server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
