// Searches the pages for words, in the browser. A section is found if each word of the query is the
// beginning of one of its words. Whole words, words in titles, and neighbouring words score higher;
// guides score higher than the change log and results. search_index.js has the sections, so that
// the search works from file://, where pages cannot read files.
'use strict';

const up = document.body.dataset.up;
const query = document.getElementById('query');
const found = document.getElementById('found');
const count = document.getElementById('count');
const shown = 30;

// Words that readers use and pages do not, with the words of the pages.
const synonyms = {
  finetune: 'fine-tune', finetuning: 'fine-tune', oom: 'out of memory', divergence: 'diverge',
  gpu: 'gpus', checkpointing: 'recompute', quantization: 'quantize',
};

// Stop words, which are ignored.
const empty = new Set(['a', 'do', 'for', 'how', 'i', 'in', 'is', 'my', 'the', 'to', 'what']);

// Returns lower case words separated by one blank: "Fine-tuning" becomes "fine tuning".
function plain(text) {
  return ' ' + text.toLowerCase().replace(/[^a-z0-9]+/g, ' ').trim() + ' ';
}

const sections = searchIndex.map(([page, anchor, title, heading, text]) => ({
  page, anchor, title, heading, text, inTitle: plain(title + ' ' + heading), inText: plain(text),
}));

function wordsOf(text) {
  const all = plain(text).trim().split(' ').filter((word) => word !== '');
  const words = all.some((word) => !empty.has(word)) ? all.filter((word) => !empty.has(word)) : all;
  return words.flatMap((word) => (synonyms[word] ? plain(synonyms[word]).trim().split(' ') : [word]));
}

// Returns the score of a word: 0 if no word of the text begins with it. "tuned" also finds "tune"
// and "tuning".
function countOf(word, text) {
  if (text.includes(' ' + word + ' ')) return 3;
  if (text.includes(' ' + word)) return 2;
  const stem = word.replace(/(e|es|ed|ing|s)$/, '');
  return stem.length > 2 && stem !== word && text.includes(' ' + stem) ? 1 : 0;
}

function scoreOf(section, words) {
  let score = 0;
  for (const word of words) {
    const inTitle = countOf(word, section.inTitle), inText = countOf(word, section.inText);
    if (inTitle + inText === 0) return 0;
    score += 10 * inTitle + inText;
  }
  const phrase = ' ' + words.join(' ');
  if (section.inTitle.includes(phrase)) score += 15;
  if (section.inText.includes(phrase)) score += 5;
  if (/^docs\/(tutorials|howto)\//.test(section.page)) score += 4;
  if (section.heading === section.title) score += 6;
  if (/^(CHANGELOG|bench|test)/.test(section.page)) score -= 40;
  return Math.max(score, 1);
}

// Returns the sections that contain all words of the text, the best first.
function rank(text) {
  const words = wordsOf(text);
  if (words.length === 0) return [];
  return sections.map((section) => ({ section, score: scoreOf(section, words) }))
      .filter(({ score }) => score > 0).sort((a, b) => b.score - a.score)
      .map(({ section }) => section);
}

// Returns the text around the first of the words.
function excerptOf(section, words) {
  const text = section.text.toLowerCase();
  const places = words.map((word) => text.indexOf(word)).filter((at) => at >= 0);
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
  const words = wordsOf(query.value);
  const ranked = rank(query.value);
  found.replaceChildren();
  found.hidden = words.length === 0;
  count.textContent = '';
  if (words.length === 0) return;
  for (const section of ranked.slice(0, shown)) show(section, words);
  count.textContent = ranked.length > shown ? `${shown} of ${ranked.length} sections`
      : ranked.length === 1 ? '1 section' : `${ranked.length} sections`;
}

query.addEventListener('input', search);
// A link may contain a query: index.html?q=offload.
query.value = new URLSearchParams(location.search).get('q') ?? '';
search();
