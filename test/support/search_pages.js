// node search_pages.js SITE QUERY: the sections that the site's search finds, the best first, a line
// each: page and heading.
'use strict';
const fs = require('fs');
const vm = require('vm');

const [site, query] = process.argv.slice(2);
const element = new Proxy({ value: '', addEventListener() {}, replaceChildren() {}, append() {} }, {});
const document = { body: { dataset: { up: '' } }, getElementById: () => element };
const context = vm.createContext({ document, URLSearchParams, location: { search: '' } });
const source = ['search_index.js', 'search.js'].map((file) => fs.readFileSync(`${site}/${file}`, 'utf8'));
vm.runInContext(source.join('\n') + '\n;globalThis.rank = rank;', context);
for (const { page, heading } of context.rank(query)) console.log(`${page} ${heading}`);
