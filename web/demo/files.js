// Files of the page's models.

/** What a JSON file holds; an error that says how it gets there where there is none. */
export async function json(address) {
  const response = await fetch(address).catch((error) => {
    throw new Error(`${address} cannot be fetched: ${error.message}; open this once with a network`);
  });
  // Servers of single pages answer with the page where there is no file.
  if (response.ok && !response.headers.get('content-type')?.includes('html')) return response.json();
  const status = response.ok ? '' : `, ${response.status}`;
  throw new Error(`${address} is not there${status}: \`make web-demo\` writes it`);
}
