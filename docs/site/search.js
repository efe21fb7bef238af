// Searches the pages for words, in the reader's browser: every word must be in a section, as the
// beginning of a word of it; a word in a title counts most. search_index.js has the sections, so
// that this works from file://, where a page may not read files.
'use strict';

const up = document.body.dataset.up;
const query = document.getElementById('query');
const found = document.getElementById('found');
const count = document.getElementById('count');
const shown = 30;

const sections = searchIndex.map(([page, anchor, title, heading, text]) => ({
  page, anchor, title, heading, text,
  lowerTitle: (title + ' ' + heading).toLowerCase(), lowerText: text.toLowerCase(),
}));

// Where `word` begins a word of `text`; -1: nowhere. Names with dashes are words, and their parts.
function placeOf(word, text) {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at === 0 || !/[a-z0-9]/.test(text[at - 1])) return at;
  }
  return -1;
}

function scoreOf(section, words) {
  let score = 0;
  for (const word of words) {
    const inTitle = placeOf(word, section.lowerTitle) >= 0;
    if (!inTitle && placeOf(word, section.lowerText) < 0) return 0;
    score += inTitle ? 10 : 1;
  }
  return score;
}

// What stands around the first of the words that the text has.
function excerptOf(section, words) {
  const places = words.map((word) => placeOf(word, section.lowerText)).filter((at) => at >= 0);
  const from = Math.max(0, (places.length > 0 ? Math.min(...places) : 0) - 40);
  return (from > 0 ? '… ' : '') + section.text.slice(from, from + 120);
}

function show(section, words) {
  const item = document.createElement('li');
  const link = document.createElement('a');
  link.href = up + section.page + (section.anchor ? '#' + section.anchor : '');
  link.textContent =
      section.heading === section.title ? section.title : section.title + ': ' + section.heading;
  const excerpt = document.createElement('small');
  excerpt.textContent = excerptOf(section, words);
  item.append(link, excerpt);
  found.append(item);
}

function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter((word) => word !== '');
  found.replaceChildren();
  found.hidden = words.length === 0;
  count.textContent = '';
  if (words.length === 0) return;
  const ranked = sections.map((section) => ({ section, score: scoreOf(section, words) }))
      .filter(({ score }) => score > 0).sort((a, b) => b.score - a.score);
  for (const { section } of ranked.slice(0, shown)) show(section, words);
  count.textContent = ranked.length > shown ? `${shown} of ${ranked.length} sections`
      : ranked.length === 1 ? '1 section' : `${ranked.length} sections`;
}

query.addEventListener('input', search);
// A link may bring a query: index.html?q=offload.
query.value = new URLSearchParams(location.search).get('q') ?? '';
search();
