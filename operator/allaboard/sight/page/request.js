// Sends requests to the API. Nothing but GET is ever sent.

export class Refused extends Error {}

// Returns the text at a path below `base`; "null" if the caller may not read it, or if there is no such object.
export async function getText(base, path, token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(base + path, { headers }).catch(() => {
    throw new Error("The operator doesn't answer");
  });
  if (answer.ok) return answer.text();
  if (answer.status === 403 || answer.status === 404) return "null";
  const { message } = await answer.json().catch(() => ({ message: `The operator's answer (${answer.status}) can't be read` }));
  throw answer.status === 401 ? new Refused(message) : new Error(message);
}

export const get = async (base, path, token) => JSON.parse(await getText(base, path, token));
