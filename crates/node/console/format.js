// How values are written: numbers, times, sizes, UCUM units, and short names of long identifiers.

const precise = new Intl.NumberFormat('en', { maximumSignificantDigits: 5, useGrouping: false });
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** A measured number: at most five significant digits, a true minus sign. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  if (Number.isSafeInteger(value)) return String(value).replace('-', '−');
  if (size < 1e-4 || size >= 1e9) return value.toExponential(3).replace('-', '−');
  return precise.format(value).replace('-', '−');
}

/** A count, with separators. */
export function count(value) {
  return value === null || value === undefined ? '–' : whole.format(value);
}

/** A rate, for display. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return '–';
  if (perSecond === 0) return '0/s';
  if (perSecond >= 0.1) return `${number(Math.round(perSecond * 10) / 10)}/s`;
  return `${number(Math.round(perSecond * 600) / 10)}/min`;
}

/** How many elements come in a second. */
export function perSecond(elements) {
  return `${elements >= 10 ? Math.round(elements) : elements.toFixed(1)} elements/s`;
}

const DISPLAY = {
  Cel: '°C',
  '[degF]': '°F',
  uV: 'µV',
  um: 'µm',
  us: 'µs',
  1: '',
  'm/s2': 'm/s²',
  '[ppm]': 'ppm',
  'mm[Hg]': 'mmHg',
  Ohm: 'Ω',
  deg: '°',
  'g/m3': 'g/m³',
  'ug/m3': 'µg/m³',
  'W/m2': 'W/m²',
  m2: 'm²',
  m3: 'm³',
  '[pH]': 'pH',
  '/min': '/min',
  '{beats}/min': 'beats/min',
  '[ppb]': 'ppb',
};

/** A UCUM code as people write it; annotations in braces become words. */
export function unit(code) {
  if (!code) return '';
  return DISPLAY[code] ?? code.replace(/[{}[\]]/g, '');
}

/** How long ago, from milliseconds. */
export function age(milliseconds) {
  if (!Number.isFinite(milliseconds)) return '–';
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return '< 1 s';
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** How long ago a time of the API is. */
export function since(text) {
  return text ? age(Date.now() - Date.parse(text)) : '–';
}

const pad = (value, digits = 2) => String(value).padStart(digits, '0');

/** The time of day where the reader is; `digits` after the second. */
export function clock(time, digits = 0) {
  if (time === null || time === undefined) return '–';
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return '–';
  const base = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return digits ? `${base}.${pad(date.getMilliseconds(), 3).slice(0, digits)}` : base;
}

/** Day and time of day; only the time when it is today. */
export function moment(time) {
  const date = new Date(time);
  if (!time || Number.isNaN(date.getTime())) return '–';
  if (date.toDateString() === new Date().toDateString()) return clock(date);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(date)}`;
}

/** A size in binary multiples. */
export function bytes(value) {
  if (value === null || value === undefined) return '–';
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let step = 0;
  let rest = value;
  while (rest >= 1024 && step < names.length - 1) {
    rest /= 1024;
    step += 1;
  }
  return `${rest >= 100 || step === 0 ? Math.round(rest) : rest.toFixed(1)} ${names[step]}`;
}

/** The local part of a "{namespace}local" name. */
export function local(name) {
  return name.slice(name.lastIndexOf('}') + 1) || name;
}

/** The last part of an IRI; the title shows the whole. */
export function short(iri) {
  if (!iri) return '';
  const mdc = /^urn:oid:1\.2\.840\.10004\.[\d.]*[.#](\d+)$/.exec(iri);
  if (mdc) return `MDC ${mdc[1]}`;
  const loinc = /^https?:\/\/loinc\.org\/(.+)$/.exec(iri);
  if (loinc) return `LOINC ${loinc[1]}`;
  const snomed = /^https?:\/\/snomed\.info\/(?:id|sct)\/(.+)$/.exec(iri);
  if (snomed) return `SNOMED ${snomed[1]}`;
  if (iri.startsWith('urn:uuid:')) return `${iri.slice(9, 17)}…`;
  const tail = iri
    .replace(/[/#]+$/, '')
    .split(/[#/]/)
    .pop();
  return tail || iri;
}

/** One value of a stream as text; a stretch of samples is summed up. */
export function value(content, code) {
  if (content === null || content === undefined) return '–';
  if (typeof content === 'object' && Array.isArray(content.values)) {
    let low = Infinity;
    let high = -Infinity;
    for (const one of content.values) {
      if (one < low) low = one;
      if (one > high) high = one;
    }
    if (low > high) return 'no samples';
    const range = `${number(low)} to ${number(high)} ${unit(code)}`.trim();
    return `${content.values.length} samples, ${range}`;
  }
  if (typeof content === 'number') return `${number(content)} ${unit(code)}`.trim();
  if (typeof content === 'boolean') return content ? 'yes' : 'no';
  return String(content);
}

/** A pacer in words: its state, and the time between two that go out. */
export function paced(state, periodSeconds) {
  return periodSeconds > 0 ? `${state}, every ${(periodSeconds * 1e3).toPrecision(3)} ms` : state;
}
