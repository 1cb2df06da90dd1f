// Everything that was fetched once is there without a network. Files whose names have a hash never change; pages are asked for
// anew while there is a network. What an export names by its hash is left alone: the library keeps it.

const CACHE = 'page';

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== 'GET' || origin !== location.origin || /\/(weights-\d+\.bin|programs\.json\.deflated)$/.test(pathname)) return;
  event.respondWith(/\/(assets|ort)\//.test(pathname) ? firstKept(request) : firstFetched(request));
});

async function keep(request, response) {
  if (response.ok) (await caches.open(CACHE)).put(request, response.clone());
  return response;
}

async function firstKept(request) {
  return (await caches.match(request)) ?? keep(request, await fetch(request));
}

async function firstFetched(request) {
  try {
    return await keep(request, await fetch(request));
  } catch (error) {
    const kept = await caches.match(request);
    if (kept) return kept;
    throw error;
  }
}
