// A batch of changes: what it has copied once, it changes in place until it ends, so that many events cost one copy.

/** The copies that belong to one call of the reducer. Nobody else has seen them, so it stays pure. */
export class Batch {
  private readonly own = new WeakSet<object>();

  map<K, V>(known: ReadonlyMap<K, V>): Map<K, V> {
    return this.copied(known as Map<K, V>, () => new Map(known));
  }

  set<T>(known: ReadonlySet<T>): Set<T> {
    return this.copied(known as Set<T>, () => new Set(known));
  }

  private copied<T extends object>(known: T, copy: () => T): T {
    if (this.own.has(known)) return known;
    const mine = copy();
    this.own.add(mine);
    return mine;
  }
}
