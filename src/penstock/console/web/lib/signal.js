// Reactive values. An effect runs again when a signal that it read has changed; a computed value is recomputed when it
// is next read. Everything that is made inside a scope (effects, polls, listeners) ends with the scope.
//
//     const count = signal(1);
//     const twice = computed(() => count.value * 2);
//     effect(() => console.log(twice.value));      // 2
//     count.set(5);                                // 10
//
// Effects run at once, or at the end of the outermost batch. An effect does not run if what it read has the value it
// had before.

/**
 * @template T
 * @typedef {object} Signal
 * @property {T} value Reading it inside an effect makes the effect depend on it.
 * @property {() => T} peek Reads without depending.
 * @property {(value: T) => void} set
 * @property {(change: (value: T) => T) => void} update
 */

/**
 * @template T
 * @typedef {{readonly value: T, peek: () => T}} Computed
 */

/** @typedef {() => void} Dispose */

/** A signal, or a computed value: something that has a value and observers. */
class Source {
  /** @param {any} value */
  constructor(value) {
    this.held = value;
    this.version = 0;
    /** @type {Set<Observer>} */
    this.observers = new Set();
  }

  renew() {}

  get value() {
    this.renew();
    if (observing !== null) observing.reads(this);
    return this.held;
  }

  peek() {
    this.renew();
    return this.held;
  }

  changed() {
    for (const each of [...this.observers]) each.stale();
  }
}

class SignalSource extends Source {
  get value() {
    return super.value;
  }

  set value(value) {
    this.set(value);
  }

  /** @param {any} value */
  set(value) {
    if (Object.is(value, this.held)) return;
    this.held = value;
    this.version += 1;
    batch(() => this.changed());
  }

  /** @param {(value: any) => any} change */
  update(change) {
    this.set(change(this.held));
  }
}

/** What reads sources: keeps the versions that it has read. */
class Observer {
  constructor() {
    /** @type {Map<Source, number>} */
    this.sources = new Map();
  }

  /** @param {Source} source */
  reads(source) {
    this.sources.set(source, source.version);
    source.observers.add(this);
  }

  forget() {
    for (const source of this.sources.keys()) source.observers.delete(this);
    this.sources.clear();
  }

  isOutdated() {
    for (const [source, version] of this.sources) {
      source.renew();
      if (source.version !== version) return true;
    }
    return false;
  }

  stale() {}
}

class ComputedSource extends Source {
  /** @param {() => any} compute */
  constructor(compute) {
    super(undefined);
    this.compute = compute;
    this.isStale = true;
    this.observer = new Observer();
    this.observer.stale = () => {
      if (!this.isStale) {
        this.isStale = true;
        this.changed();
      }
    };
  }

  renew() {
    if (!this.isStale) return;
    this.isStale = false;
    if (this.version > 0 && !this.observer.isOutdated()) return;
    this.observer.forget();
    const value = observe(this.observer, this.compute);
    if (this.version === 0 || !Object.is(value, this.held)) {
      this.held = value;
      this.version += 1;
    }
  }
}

class Effect extends Observer {
  /** @param {() => void} run */
  constructor(run) {
    super();
    this.run = run;
    this.isOver = false;
    /** @type {Dispose[]} */
    this.cleanups = [];
  }

  stale() {
    waiting.add(this);
  }

  start() {
    this.cleanUp();
    this.forget();
    within(this.cleanups, () => observe(this, this.run));
  }

  cleanUp() {
    for (const each of this.cleanups.splice(0).reverse()) each();
  }

  end() {
    this.isOver = true;
    waiting.delete(this);
    this.cleanUp();
    this.forget();
  }
}

const RUNS_MAX = 10_000; // in one batch: more is an effect that changes what it reads

/** @type {Observer | null} */
let observing = null;
/** @type {Dispose[] | null} */
let owner = null;
/** @type {Dispose[] | null} */
let fallback = null;
/** @type {Set<Effect>} */
const waiting = new Set();
let depth = 0;

/**
 * @template T
 * @param {Observer | null} observer
 * @param {() => T} fn
 * @returns {T}
 */
function observe(observer, fn) {
  const before = observing;
  observing = observer;
  try {
    return fn();
  } finally {
    observing = before;
  }
}

/**
 * @template T
 * @param {Dispose[]} cleanups
 * @param {() => T} fn
 * @returns {T}
 */
function within(cleanups, fn) {
  const before = owner;
  owner = cleanups;
  try {
    return fn();
  } finally {
    owner = before;
  }
}

/**
 * @template T
 * @param {T} initial
 * @returns {Signal<T>}
 */
export function signal(initial) {
  return new SignalSource(initial);
}

/**
 * @template T
 * @param {() => T} fn
 * @returns {Computed<T>}
 */
export function computed(fn) {
  const made = new ComputedSource(fn);
  onDispose(() => made.observer.forget());
  return made;
}

/**
 * Run now, and again whenever something that it read has changed.
 * @param {() => void} fn
 * @returns {Dispose}
 */
export function effect(fn) {
  const made = new Effect(fn);
  made.start();
  const end = () => made.end();
  onDispose(end);
  return end;
}

/**
 * Changes inside are seen by effects together, at the end.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function batch(fn) {
  depth += 1;
  try {
    return fn();
  } finally {
    if (depth === 1) settle();
    depth -= 1;
  }
}

function settle() {
  for (let runs = 0; waiting.size; runs++) {
    if (runs > RUNS_MAX) {
      waiting.clear();
      throw new Error("an effect changes a signal that it reads, without end");
    }
    const [next] = waiting;
    waiting.delete(next);
    if (!next.isOver && next.isOutdated()) next.start();
  }
}

/**
 * Run without depending on what is read.
 * @template T
 * @param {() => T} fn
 * @returns {T}
 */
export function untracked(fn) {
  return observe(null, fn);
}

/**
 * Run a function; effects, polls and listeners that it makes end when the returned function is called.
 * @template T
 * @param {() => T} fn
 * @returns {[T, Dispose]}
 */
export function scope(fn) {
  /** @type {Dispose[]} */
  const cleanups = [];
  const end = () => {
    for (const each of cleanups.splice(0).reverse()) each();
  };
  const result = within(cleanups, () => observe(null, fn));
  return [result, end];
}

/**
 * Like `scope`, for a page: what is made later without a scope, after an `await` or in an event handler, belongs to
 * this scope too, until the next page begins.
 * @template T
 * @param {() => T} fn
 * @returns {[T, Dispose]}
 */
export function pageScope(fn) {
  /** @type {Dispose[]} */
  const cleanups = [];
  fallback = cleanups;
  const end = () => {
    if (fallback === cleanups) fallback = null;
    for (const each of cleanups.splice(0).reverse()) each();
  };
  return [within(cleanups, () => observe(null, fn)), end];
}

/**
 * Call when the surrounding scope ends.
 * @param {Dispose} fn
 */
export function onDispose(fn) {
  (owner ?? fallback)?.push(fn);
}

/**
 * Whether a value is a signal or a computed value.
 * @param {any} value
 * @returns {value is Signal<any>}
 */
export function isSignal(value) {
  return value instanceof Source;
}

/**
 * The value of a signal, or the value itself.
 * @template T
 * @param {T | Signal<T> | Computed<T>} value
 * @returns {T}
 */
export function read(value) {
  return value instanceof Source ? value.value : /** @type {T} */ (value);
}
