// The guide's contents, search, and long lines. Without scripts the pages are complete; the list of all pages is
// toc.html then.

const root = document.documentElement.dataset.root;
const element = (id) => document.getElementById(id);
/** Results that are shown; reason: about one screen. */
const RESULTS_MAX = 12;
/** Characters of a result's text before the first word that was looked for, and in all. */
const [LEAD, EXTRACT] = [40, 180];

/** The list of pages: its links are relative to the guide's root. */
function showContents() {
  const contents = element('contents');
  const here = new URL(location.href);
  for (const link of contents.querySelectorAll('a')) {
    link.href = root + link.getAttribute('href');
    const target = new URL(link.href);
    const isHere = target.pathname === here.pathname ||
      (here.pathname.endsWith('/') && target.pathname === `${here.pathname}index.html`);
    if (isHere) link.setAttribute('aria-current', 'page');
  }
  contents.hidden = false;
  const menu = element('menu');
  menu.hidden = false;
  menu.addEventListener('click', () => {
    const isOpen = contents.classList.toggle('open');
    menu.setAttribute('aria-expanded', String(isOpen));
  });
  contents.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest' });
}

/** What scrolls sideways can be reached by keyboard. */
function reachScrolling() {
  for (const box of document.querySelectorAll('main pre, main .table-wrapper')) {
    if (box.scrollWidth <= box.clientWidth) continue;
    box.tabIndex = 0;
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', box.matches('pre') ? 'Code' : 'Table');
  }
}

/** A cell above the names of rows heads no column. */
function emptyHeads() {
  for (const cell of document.querySelectorAll('main th:empty')) cell.replaceWith(document.createElement('td'));
}

let loading;
/** The index of all sections, loaded with the first search. */
function load() {
  loading ??= new Promise((resolve, reject) => {
    window.search ??= {};
    const script = document.createElement('script');
    script.src = document.documentElement.dataset.index;
    script.onload = () => resolve({
      index: elasticlunr.Index.load(window.search.index),
      options: window.search.search_options,
      urls: window.search.doc_urls,
    });
    script.onerror = () => reject(new Error('the search index cannot be loaded'));
    document.head.append(script);
  });
  return loading;
}

/** The text of a section around the first of the words. */
function extract(body, words) {
  const lower = body.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
  const start = Math.max(0, Math.min(...places, body.length) - LEAD);
  const from = places.length === 0 || start === 0 ? 0 : body.indexOf(' ', start) + 1;
  const text = body.slice(from, from + EXTRACT);
  return `${from > 0 ? '… ' : ''}${text}${from + EXTRACT < body.length ? ' …' : ''}`;
}

function result(found, { index, urls }, words) {
  const section = index.documentStore.getDoc(found.ref);
  const item = document.createElement('li');
  const link = document.createElement('a');
  link.href = root + urls[found.ref];
  link.textContent = section.breadcrumbs.replaceAll('»', '›');
  const text = document.createElement('p');
  text.textContent = extract(section.body, words);
  item.append(link, text);
  return item;
}

async function search() {
  const text = element('words').value.trim().toLowerCase();
  const [results, count, list] = [element('results'), element('count'), element('found')];
  results.hidden = text === '';
  if (text === '') return;
  try {
    const loaded = await load();
    if (element('words').value.trim().toLowerCase() !== text) return;
    // All words first; where no section has them all, sections with some of them.
    const all = loaded.index.search(text, { ...loaded.options, bool: 'AND' });
    const found = all.length > 0 ? all : loaded.index.search(text, loaded.options);
    const words = text.split(/\s+/u);
    list.replaceChildren(...found.slice(0, RESULTS_MAX).map((one) => result(one, loaded, words)));
    count.textContent = found.length === 0 ? 'Nothing found' : `${found.length} sections`;
  } catch (error) {
    list.replaceChildren();
    count.textContent = `Search failed: ${error.message}`;
  }
}

function enableSearch() {
  const words = element('words');
  element('search').hidden = false;
  words.addEventListener('input', search);
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.matches('input, textarea');
    if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      words.focus();
    } else if (event.key === 'Escape') {
      words.value = '';
      search();
    }
  });
}

showContents();
emptyHeads();
reachScrolling();
addEventListener('resize', reachScrolling);
enableSearch();
