/**
 * Tells whether the page has come to rest.
 *
 * Frames are counted, and not time: Grafana lays panels out in several turns, each after a frame, and on a busy machine a
 * frame of a long board can take longer than any pause that would be worth waiting on an idle one.
 */
export class Stillness {
  private frames = 0;

  constructor(root: Node) {
    const everything = { subtree: true, childList: true, characterData: true, attributes: true };
    new MutationObserver(() => this.restart()).observe(root, everything);
    this.count();
  }

  /** Whether nothing has changed in the last `frames` frames. */
  lasts(frames: number): boolean {
    return this.frames >= frames;
  }

  restart(): void {
    this.frames = 0;
  }

  private count(): void {
    requestAnimationFrame(() => {
      this.frames += 1;
      this.count();
    });
  }
}
