// The REST interface of the node, as a client sees it. Nothing else of the node is used.

const BASE = '/api/v1';
const PATIENCE_MS = 20_000;
const TOKEN_KEY = 'chappe-token';

/**
 * What the node answered when it did not answer with success; fields of application/problem+json.
 */
export class ApiError extends Error {
  constructor(status, { title, detail, hint, reasons } = {}) {
    super(title ?? `status ${status}`);
    this.status = status;
    this.title = title ?? `the node answered with status ${status}`;
    this.detail = detail ?? null;
    this.hint = hint ?? null;
    this.reasons = reasons ?? [];
  }
}

/** A path below /api/v1 whose parts are escaped. */
export function path(...parts) {
  return `${BASE}/${parts.map(encodeURIComponent).join('/')}`;
}

/** A path with a query; empty values are left out. */
export function query(base, values) {
  const search = new URLSearchParams();
  for (const [name, content] of Object.entries(values)) {
    if (content !== null && content !== undefined && content !== '') search.set(name, content);
  }
  const text = search.toString();
  return text ? `${base}?${text}` : base;
}

let token = sessionStorage.getItem(TOKEN_KEY);
let askForToken = () => {};

/** Adds the token, if the reader gave one, to the fields of a request. */
export function credentials(headers) {
  return token ? { ...headers, authorization: `Bearer ${token}` } : headers;
}

/** Keeps the token until the browser's tab is closed. */
export function useToken(text) {
  token = text;
  sessionStorage.setItem(TOKEN_KEY, text);
}

/** Sets the function that asks for a token. */
export function onRefused(ask) {
  askForToken = ask;
}

/** Reports that the node needs a token, or another one. */
export function refused() {
  askForToken();
}

async function send(url, options) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), PATIENCE_MS);
  try {
    const headers = credentials(options.headers);
    const answer = await fetch(url, { ...options, headers, signal: abort.signal });
    const text = await answer.text();
    const isJson = (answer.headers.get('content-type') ?? '').includes('json');
    let body = text;
    if (isJson) {
      try {
        body = JSON.parse(text);
      } catch {
        throw new ApiError(answer.status, { title: 'the node answered with broken JSON' });
      }
    }
    if (answer.status === 401) refused();
    if (!answer.ok)
      throw new ApiError(answer.status, isJson ? body : { detail: text.slice(0, 300) });
    return body;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, {
      title: 'the node does not answer',
      detail: error.name === 'AbortError' ? `nothing within ${PATIENCE_MS / 1000} s` : null,
      hint: 'is the program still running? The console keeps trying.',
    });
  } finally {
    clearTimeout(timer);
  }
}

/** Reads JSON, or text where the node sends text. */
export function read(url, accept = 'application/json, text/plain;q=0.5') {
  return send(url, { headers: { accept } });
}

/** Reads a list in as many parts as the node makes of it. */
export async function readList(url, member) {
  const all = [];
  let part = await read(url);
  all.push(...(part[member] ?? []));
  while (part.next) {
    part = await read(query(url, { cursor: part.next }));
    all.push(...(part[member] ?? []));
  }
  return { [member]: all };
}

/** Sends a change: method, URL, and body as JSON. */
export function change(method, url, body) {
  return send(url, {
    method,
    headers: { accept: 'application/json', 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

/** Sends the text of a TOML file. */
export function file(method, url, text) {
  return send(url, {
    method,
    headers: { accept: 'application/json', 'content-type': 'application/toml' },
    body: text,
  });
}

/** Asks a SPARQL query; by POST, with which every browser names the page that asks. */
export function sparql(text) {
  const accept = 'application/sparql-results+json';
  return send(`${BASE}/sparql`, {
    method: 'POST',
    headers: { accept, 'content-type': 'application/sparql-query' },
    body: text,
  });
}

/** Asks an SQL query over the stored streams; a partial answer, where one is allowed, says so. */
export function sql(text, limit, partial) {
  return send(`${BASE}/streams/query`, {
    method: 'POST',
    headers: { accept: 'application/json', 'content-type': 'application/json' },
    body: JSON.stringify({ sql: text, limit, partial }),
  });
}

/** The address of the one live event stream. */
export function liveAddress(streams) {
  return query(`${BASE}/live`, { streams });
}
