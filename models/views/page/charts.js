'use strict';
// Draws a feed: the JSON document of docs/reference/metrics.md. Texts of a run become text nodes
// and attributes only, never HTML.

// ---- Elements ----

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== ''));
  return node;
}
const html = (tag, attributes = {}, ...children) =>
    fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const byId = (id) => document.getElementById(id);

// ---- Numbers as text ----

function number(value) {
  if (value === null || value === undefined) return 'nan';
  const size = Math.abs(value);
  if (size >= 1e4) {
    const thousands = Math.min(6, Math.floor(Math.log10(size * 1.00005) / 3));
    return `${Number((value / 1000 ** thousands).toPrecision(4))}${' kMGTPE'[thousands].trim()}`;
  }
  return size > 0 && size < 1e-3 ? value.toExponential(2).replace(/\.?0*e/, 'e')
                                 : String(Number(value.toPrecision(5)));
}
function duration(seconds) {
  const s = Math.round(seconds), pad = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${pad(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${pad(Math.floor(s % 3600 / 60))}m`;
  return `${Math.floor(s / 86400)}d ${pad(Math.floor(s % 86400 / 3600))}h`;
}

// Units of a quantity: the divisor and the name for values up to `most`.
const kUnits = {
  bytes: (most) => {
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    const power = most < 1024 ? 0 : Math.min(5, Math.floor(Math.log2(most) / 10));
    return {divisor: 1024 ** power, name: names[power]};
  },
  percent: () => ({divisor: 0.01, name: '%'}),
  ms: (most) => most >= 1e4 ? {divisor: 1000, name: 's'} : {divisor: 1, name: 'ms'},
};
function unitOf(kind, most) {
  return kind in kUnits ? kUnits[kind](most) : {divisor: 1, name: kind};
}
function quantity(value, kind) {
  if (value === null || value === undefined) return 'nan';
  const {divisor, name} = unitOf(kind, Math.abs(value));
  const digits = kind in kUnits ? 4 : 6;
  return `${number(Number((value / divisor).toPrecision(digits)))} ${name}`.trim();
}

// ---- Charts: which columns each has. The rest get charts of their own. ----

// unit: 'bytes', 'percent', 'ms', or words, in which ITEMs stands for what the run counts.
// smooth: a noisy curve; zero: the axis begins at 0; log: follows the choice of the axis.
const kCharts = [
  {title: 'Loss', unit: 'LOSS', keys: [/^loss$/, /^val_loss$/], smooth: true, log: true},
  {title: 'Validation loss', unit: 'LOSS', keys: [/^val_loss$/, /^ema_val_loss$/], log: true},
  {title: 'Accuracy', unit: 'percent', keys: [/^val_top\d+$/, /accuracy$/]},
  {title: 'Margins', unit: '', keys: [/margin/]},
  {title: 'Log-probabilities', unit: 'nats', keys: [/chosen|rejected/]},
  {title: 'Throughput', unit: 'ITEMs/s', keys: [/_per_s$/], smooth: true, zero: true},
  {title: 'MFU', unit: 'percent', keys: [/^mfu$/], smooth: true, zero: true},
  {title: 'Step time', unit: 'ms', smooth: true, zero: true,
   keys: [/^step_ms$/, /^comm_exposed_ms$/, /^bubble_ms$/, /^data_wait_ms$/]},
  {title: 'Memory, rank 0', unit: 'bytes', zero: true,
   keys: [/^device_peak_bytes$/, /^host_peak_bytes$/]},
  {title: 'Gradient norm', unit: '', keys: [/^grad_norm$/], smooth: true, log: true},
  {title: 'Learning rate', unit: '', keys: [/^lr$/], zero: true},
  {title: 'Skipped steps', unit: '', keys: [/^(skipped|outlier)_steps$/], zero: true},
  {title: 'Tokens of an expert', unit: '', keys: [/^expert_tokens_/], smooth: true, zero: true},
  {title: 'Dropped tokens', unit: 'percent', keys: [/^dropped_share$/], smooth: true, zero: true},
  {title: 'Sent by rank 0', unit: 'bytes', keys: [/^sent_/], zero: true},
];
const kNames = {
  loss: 'training', val_loss: 'validation', ema_val_loss: 'averaged weights', step_ms: 'step',
  comm_exposed_ms: 'exposed comm.', bubble_ms: 'pipeline bubble', data_wait_ms: 'data',
  device_peak_bytes: 'device', host_peak_bytes: 'host',
};
const kFigures = {
  device_busy_share: 'Device busy', device_fragmentation: 'Device fragmentation',
  device_nccl_share: 'NCCL kernels', device_watts: 'Device power, W', device_celsius: 'Device temperature, C',
  device_used_bytes: 'Device memory in use', device_peak_bytes: 'Device memory', host_peak_bytes: 'Host memory',
};
// Name of a figure of all ranks.
const figureName = (base) => kFigures[base] ?? nameOf(base.replace('_share_all', ''))
    .replace('comm exposed', 'Exposed comm.').replace('comm in flight', 'Comm. in flight')
    .replace(' share', ',');
const nameOf = (key) => kNames[key] ??
    key.replaceAll('_', ' ').replace(/^val top/, 'top-').replace(/^sent (.*) bytes$/, '$1');

// Unit of a column that is in no listed chart.
function unitOfKey(key) {
  if (/bytes/.test(key)) return 'bytes';
  if (/share|fragmentation|utilization/.test(key)) return 'percent';
  return /_ms$/.test(key) ? 'ms' : '';
}

// Charts of these runs, each with the keys that its runs have.
function chartsOf(runs) {
  const has = (column) => column !== undefined && column.steps.length > 0;
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.columns)))].filter(
      (key) => runs.some((run) => has(run.columns[key])));
  const items = runs.map((run) => run.about.item), item = items[0] ?? 'items';
  const left = new Set(keys), charts = [];
  for (const kind of kCharts) {
    const chosen = kind.keys.flatMap(
        (pattern) => keys.filter((key) => pattern.test(key) && isShown(runs, key)));
    keys.filter((key) => kind.keys.some((pattern) => pattern.test(key))).forEach(
        (key) => left.delete(key));
    if (chosen.length === 0 || (kind.title === 'Loss' && !keys.includes('loss'))) continue;
    const unit = kind.unit.replace('ITEMs', item).replace('LOSS', lossUnit(runs[0], item));
    charts.push({...kind, unit, keys: chosen});
  }
  const hasGpus = keys.includes('device_watts_median');
  for (const key of keys.filter((key) => key.endsWith('_median'))) {  // a figure of all ranks
    const base = key.replace(/_median$/, '');
    for (const part of ['min', 'median', 'max', 'min_rank', 'max_rank']) {
      left.delete(`${base}_${part}`);
    }
    const most = Math.max(...runs.map((run) => run.columns.ranks?.newest ?? 1));
    const chart = {unit: unitOfKey(base), keys: [key], band: base, zero: true};
    const isOfGpu = hasGpus && /^device_(busy|watts|celsius|used)/.test(base);
    const title = most > 1 ? `${figureName(base)}, all ranks` : figureName(base);
    if (most > 1 || isOfGpu) charts.push({...chart, title});
  }
  const counts = items.flatMap((word) => [word, `val_${word}`]);
  const hidden = ['ranks', 'epoch', 'val_ms', 'loss_scale', ...counts];
  for (const key of left) {
    if (hidden.includes(key) && !(key === 'loss_scale' && varies(runs, key))) continue;
    charts.push({title: nameOf(key), unit: unitOfKey(key), keys: [key]});
  }
  return charts;
}
function lossUnit(run, item) {
  if (run.about.options?.task === 'dpo') return 'per pair';
  return item === 'tokens' ? 'nats per token' : `per ${item.replace(/s$/, '')}`;
}
function varies(runs, key) {
  const values = runs.flatMap((run) => run.columns[key]?.values ?? []);
  return values.some((value) => value !== values[0]);
}
// Parts of a step are shown only if they ever take a hundredth of it.
function isShown(runs, key) {
  if (!/^(comm_exposed|bubble|data_wait)_ms$/.test(key)) return true;
  return runs.some((run) => (run.columns[key]?.sum ?? 0) >= 0.01 * (run.columns.step_ms?.sum ?? 0));
}

// Weighted means over about a hundredth of the values on each side, so that they do not lag.
function smoothed(values) {
  const decay = 1 - 1 / Math.max(1, values.length / 100);
  const means = (list) => {
    let sum = 0, weights = 0;
    return list.map((value) => {
      const before = [sum, weights];
      sum = decay * (sum + value);
      weights = decay * (weights + 1);
      return before;
    });
  };
  const before = means(values), after = means([...values].reverse()).reverse();
  return values.map((value, i) => (before[i][0] + value + after[i][0]) /
                                  (before[i][1] + 1 + after[i][1]));
}

// The value of a column at a step, between its points on a straight line.
function at(column, step) {
  const {steps, values} = column;
  let low = 0, high = steps.length - 1;
  if (step <= steps[low]) return values[low] * (steps[low] > 0 ? step / steps[low] : 1);
  if (step >= steps[high]) return values[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    steps[middle] <= step ? low = middle : high = middle;
  }
  const share = (step - steps[low]) / (steps[high] - steps[low]);
  return values[low] + share * (values[high] - values[low]);
}

// Curves of a chart: {name, color, dash, dots, points: [{x, step, y, least, most}], mean: [y]}.
function curvesOf(chart, runs, axis) {
  const curves = [];
  runs.forEach((run, r) => chart.keys.forEach((key, k) => {
    const column = run.columns[key];
    if (!column || column.steps.length === 0) return;
    const ends = ['_min', '_max'].map((part) => chart.band && run.columns[chart.band + part]);
    const points = column.steps.map((step, i) => ({
      x: axis === 'step' ? step : at(run.columns[axis], step), step, y: column.values[i],
      least: ends[0]?.steps.length > 0 ? at(ends[0], step) : column.least?.[i],
      most: ends[1]?.steps.length > 0 ? at(ends[1], step) : column.most?.[i],
    })).filter((point) => !chart.isLog || point.y > 0);
    if (points.length === 0) return;
    const isFew = /^(ema_)?val_/.test(key) || points.length < 2;
    const ys = points.map((point) => point.y);
    curves.push({
      name: [runs.length > 1 ? run.about.name : '',
             chart.keys.length > 1 || runs.length === 1 ? nameOf(key) : ''].join(' ').trim(),
      key, points, mean: chart.smooth && !isFew ? smoothed(ys) : ys,
      color: (runs.length > 1 ? r : k) % 6, dash: runs.length > 1 ? k % 4 : 0,
      dots: isFew, isNoisy: chart.smooth && !isFew && points.length > 100,
    });
  }));
  return curves;
}

// At most about `most` round numbers in [low, high].
function marks(low, high, most) {
  if (!(low < high)) return [low];
  let space = 10 ** Math.floor(Math.log10((high - low) / most));
  for (const factor of [2, 2.5, 2]) {
    if ((high - low) / space <= most) break;
    space *= factor;
  }
  const list = [];
  for (let i = Math.ceil(low / space); i * space <= high * (1 + 1e-12) && list.length < 9; ++i) {
    list.push(Number((i * space).toPrecision(12)));
  }
  return list;
}

// ---- A chart as SVG ----

const kWidth = 305, kHeight = 134, kLeft = 46, kRight = 8, kTop = 6, kBottom = 20;  // pixels

function frameOf(chart, curves) {
  const points = curves.flatMap((curve) => curve.points);
  const all = (pick) => points.map(pick).filter(Number.isFinite);
  const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
  const height = (y) => chart.isLog ? Math.log10(y) : y;
  const ends = ['least', 'most', 'y'].flatMap((name) => all((point) => point[name]));
  const shown = chart.isLog ? ends.filter((y) => y > 0) : ends;
  let low = height(least(shown)), high = height(most(shown));
  if (chart.zero && low > 0) low = 0;
  const room = high > low ? 0.05 * (high - low) : Math.max(0.1 * Math.abs(high), 1e-6);
  if (!(chart.zero && low === 0)) low -= room;
  high = chart.unit === 'percent' && high <= 1 ? Math.min(high + room, 1) : high + room;
  let first = least(all((point) => point.x)), last = most(all((point) => point.x));
  if (first === last) [first, last] = [first - 1, last + 1];
  const inside = (share) => Math.min(1, Math.max(0, share));
  const width = kWidth - kLeft - kRight, tall = kHeight - kTop - kBottom;
  return {
    first, last, low, high, height, most: most(shown.map(Math.abs)),
    x: (x) => kLeft + (x - first) / (last - first) * width,
    y: (y) => kTop + (1 - inside((height(y) - low) / (high - low))) * tall,
  };
}

const fixed = (value) => value.toFixed(1);
const pathOf = (points) =>
    points.map(([x, y], i) => `${i ? 'L' : 'M'}${fixed(x)} ${fixed(y)}`).join('');

function axes(frame, chart, axis) {
  const {divisor} = chart.scale, nodes = [], widthOf = (text) => 5.8 * text.length;
  const line = (x1, y1, x2, y2) =>
      nodes.push(svg('path', {class: 'grid', d: pathOf([[x1, y1], [x2, y2]])}));
  const label = (x, y, anchor, text) =>
      nodes.push(svg('text', {x: fixed(x), y: fixed(y), 'text-anchor': anchor}, text));
  let values = marks(frame.low / divisor, frame.high / divisor, 5).map((mark) => mark * divisor);
  if (chart.isLog) {
    const low = Math.floor(frame.low), high = Math.ceil(frame.high);
    values = [];
    for (let power = low; power <= high; power += Math.max(1, Math.ceil((high - low) / 5))) {
      for (const digit of high - low > 2 ? [1] : [1, 2, 5]) values.push(digit * 10 ** power);
    }
    values = values.filter((y) => frame.height(y) >= frame.low && frame.height(y) <= frame.high);
    if (values.length < 2) values = marks(10 ** frame.low, 10 ** frame.high, 4);
  }
  let above = Infinity;
  for (const y of values) {
    line(kLeft, frame.y(y), kWidth - kRight, frame.y(y));
    if (above - frame.y(y) < 13) continue;
    above = frame.y(y);
    label(kLeft - 4, above + 3.5, 'end', number(Number((y / divisor).toPrecision(5))));
  }
  const bottom = kHeight - kBottom;
  label(kLeft - 4, bottom + 16, 'end', axis);
  for (const x of marks(frame.first, frame.last, 5)) {
    if (axis !== 'epoch' && !Number.isInteger(x)) continue;
    const text = number(x), half = widthOf(text) / 2, place = frame.x(x);
    line(place, kTop, place, bottom);
    if (place - half > kLeft) {
      label(Math.min(place, kWidth - half - 1), bottom + 16, 'middle', text);
    }
  }
  return nodes;
}

function drawn(curve, frame) {
  const stroke = `stroke${curve.color} dash${curve.dash}`, color = `fill${curve.color}`, nodes = [];
  const places = (ys) => curve.points.map((point, i) => [frame.x(point.x), frame.y(ys[i])]);
  const least = curve.points.map((point) => point.least ?? point.y);
  const most = curve.points.map((point) => point.most ?? point.y);
  const hasBand = curve.points.some((point) => point.most > point.least);
  if (hasBand) {
    nodes.push(svg('path', {class: `band ${color}`,
                            d: `${pathOf(places(least).concat(places(most).reverse()))}Z`}));
  } else if (curve.isNoisy) {
    const raw = curve.points.map((point) => point.y);
    nodes.push(svg('path', {class: `faint ${stroke}`, d: pathOf(places(raw))}));
  }
  if (curve.points.length > 1) {
    nodes.push(svg('path', {class: `line ${stroke}`, d: pathOf(places(curve.mean))}));
  }
  if (curve.dots && curve.points.length <= 60) {
    for (const [x, y] of places(curve.mean)) {
      nodes.push(svg('circle', {class: color, r: 2.2, cx: fixed(x), cy: fixed(y)}));
    }
  }
  return nodes;
}

const keyOf = (color, dash = 0) => svg('svg', {class: 'key', 'aria-hidden': 'true',
                                               viewBox: '0 0 16 8'},
    svg('path', {class: `line stroke${color} dash${dash}`, d: 'M0 4h16', 'stroke-width': 2}));

// Describes the curves in words, for those who cannot see them.
function description(curves, unit) {
  return curves.map(({name, points}) => {
    const ys = points.map((point) => point.y), last = points.at(-1);
    const least = ys.reduce((a, b) => Math.min(a, b)), most = ys.reduce((a, b) => Math.max(a, b));
    return `${name}: ${quantity(points[0].y, unit)} at step ${points[0].step}, ` +
           `${quantity(last.y, unit)} at step ${last.step}, least ${quantity(least, unit)}, ` +
           `most ${quantity(most, unit)}.`;
  }).join(' ');
}

function figureOf(kind, runs, axis, isLog) {
  const chart = {...kind, isLog: isLog && kind.log};
  const curves = curvesOf(chart, runs, axis);
  if (curves.length === 0) return null;
  const frame = frameOf(chart, curves);
  chart.scale = unitOf(chart.unit, frame.most);
  const legend = chart.keys.length < 2 ? [] : chart.keys.flatMap((key) => {
    const curve = curves.find((other) => other.key === key);
    return curve ? [html('span', {}, keyOf(runs.length > 1 ? 5 : curve.color, curve.dash),
                         nameOf(key))] : [];
  });
  const picture = svg('svg', {role: 'img', viewBox: `0 0 ${kWidth} ${kHeight}`, tabindex: 0},
      svg('title', {}, chart.title), svg('desc', {}, description(curves, chart.unit)),
      ...axes(frame, chart, axis), ...curves.flatMap((curve) => drawn(curve, frame)));
  picture.querySelector('title').remove();  // would cover the values at the pointer
  picture.setAttribute('aria-label', chart.title);
  showValues(picture, chart, curves, frame);
  return html('figure', {}, html('figcaption', {}, html('b', {}, chart.title), chart.scale.name,
                                 ...legend), picture);
}

// ---- Values at the pointer, or at the place that the arrow keys choose ----

let isLooking = false;  // at a chart's values: it is not replaced meanwhile

function showValues(picture, chart, curves, frame) {
  const mark = svg('g');
  picture.append(mark);
  let chosen = null;  // x
  const show = (x, left, top) => {
    isLooking = true;
    mark.replaceChildren();
    const lines = [];
    for (const curve of curves) {
      const point = curve.points.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
      if (lines.length === 0) {
        chosen = point.x;
        const unit = chart.scale.name && `, in ${chart.scale.name}`;
        lines.push(html('div', {class: 'soft'}, `step ${point.step}${unit}`));
        mark.append(svg('path', {class: 'cross', d: pathOf(
            [[frame.x(point.x), kTop], [frame.x(point.x), kHeight - kBottom]])}));
      }
      mark.append(svg('circle', {class: `fill${curve.color}`, r: 3, cx: fixed(frame.x(point.x)),
                                 cy: fixed(frame.y(point.y))}));
      const text = (y) => number(y / chart.scale.divisor);
      const ends = [point.least ?? point.y, point.most ?? point.y].map(text);
      const spread = ends[0] !== ends[1] ? ` (${ends[0]} to ${ends[1]})` : '';
      lines.push(html('div', {}, keyOf(curve.color, curve.dash),
                      `${curve.name} ${text(point.y)}${spread}`));
    }
    const tip = byId('tip');
    tip.replaceChildren(...lines);
    tip.hidden = false;
    tip.style.left = `${Math.min(left + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(top + 14, innerHeight - tip.offsetHeight - 8)}px`;
  };
  const leave = () => {
    isLooking = false;
    mark.replaceChildren();
    byId('tip').hidden = true;
  };
  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * kWidth;
    const share = (place - kLeft) / (kWidth - kLeft - kRight);
    show(frame.first + share * (frame.last - frame.first), event.clientX, event.clientY);
  });
  picture.addEventListener('pointerleave', leave);
  picture.addEventListener('blur', leave);
  picture.addEventListener('keydown', (event) => {
    const direction = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!direction) return;
    event.preventDefault();
    const xs = curves[0].points.map((point) => point.x), x = chosen ?? frame.last;
    const next = direction > 0 ? xs.find((other) => other > x) : xs.findLast((other) => other < x);
    const box = picture.getBoundingClientRect();
    show(next ?? x, box.left + box.width / 2, box.bottom - 20);
  });
}

