// The page without a network. Its own files, BUILD.files, are fetched when this is installed; of everything else, what was fetched
// once is kept, and asked for anew while there is a network. What an export names by its hash is left alone: the library keeps it.
/* global BUILD: {version, files}, which vite.config.js puts in front */

const PAGE = `page-${BUILD.version}`;
const VISITED = 'visited';
const byLibrary = /\/(weights-\d+\.bin|programs[^/]*\.deflated)$/;

self.addEventListener('install', (event) => event.waitUntil(install()));
self.addEventListener('activate', (event) => event.waitUntil(activate()));
self.addEventListener('fetch', (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== 'GET' || origin !== location.origin || byLibrary.test(pathname)) return;
  // Names of files in assets have a hash, so they never change.
  event.respondWith(pathname.includes('/assets/') ? firstKept(request) : firstFetched(event, request));
});

async function install() {
  const cache = await caches.open(PAGE);
  await cache.addAll(BUILD.files.map((file) => new Request(file, { cache: 'no-cache' })));
  await self.skipWaiting();
}

/** Takes over the page that installed this, so that what it fetches on the first visit is kept. */
async function activate() {
  for (const name of await caches.keys()) if (name !== PAGE && /^page(-|$)/.test(name)) await caches.delete(name);
  await self.clients.claim();
}

async function firstKept(request) {
  return (await caches.match(request, { ignoreVary: true })) ?? fetch(request);
}

async function firstFetched(event, request) {
  const page = request.mode === 'navigate';
  try {
    const response = await fetch(request);
    if (response.ok && !page) event.waitUntil(keep(request, response.clone()));
    return response;
  } catch (error) {
    const kept = await caches.match(page ? './' : request, { ignoreVary: true });
    if (kept) return kept;
    throw error;
  }
}

async function keep(request, response) {
  try {
    await (await caches.open(VISITED)).put(request, response);
  } catch {
    // The quota is used up: it is fetched again next time.
  }
}
