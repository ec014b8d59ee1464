export type Labels = Record<string, string>;

/** Seconds since 1970, and the value as Prometheus writes it. */
export type Sample = [number, string];

export interface InstantSeries {
  metric: Labels;
  value: Sample;
}

export interface RangeSeries {
  metric: Labels;
  values: Sample[];
}

interface InstantResult {
  resultType: 'vector' | 'scalar' | 'string';
  result: InstantSeries[] | Sample;
}

/** The value of an instant query: one series without labels for a scalar. Times are in seconds. */
export async function queryInstant(expression: string, time: number): Promise<InstantSeries[]> {
  const data = await call<InstantResult>('query', { query: expression, time: String(time) });
  return data.resultType === 'vector'
    ? (data.result as InstantSeries[])
    : [{ metric: {}, value: data.result as Sample }];
}

/** Times and step in seconds. */
export async function queryRange(expression: string, start: number, end: number, step: number): Promise<RangeSeries[]> {
  const parameters = { query: expression, start: String(start), end: String(end), step: String(step) };
  return (await call<{ result: RangeSeries[] }>('query_range', parameters)).result;
}

/** The values of a label, of all series or of those that `matcher` selects. Times in seconds. */
export async function labelValues(label: string, matcher: string, start: number, end: number): Promise<string[]> {
  const range = { start: String(start), end: String(end) };
  return call<string[]>(
    `label/${encodeURIComponent(label)}/values`,
    matcher ? { ...range, 'match[]': matcher } : range,
  );
}

/** The names of labels, of all series or of those that `matcher` selects. Times in seconds. */
export async function labelNames(matcher: string, start: number, end: number): Promise<string[]> {
  const range = { start: String(start), end: String(end) };
  return call<string[]>('labels', matcher ? { ...range, 'match[]': matcher } : range);
}

async function call<T>(path: string, parameters: Record<string, string>): Promise<T> {
  const response = await fetch(`/prometheus/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const body = await response.text();
  let answer: { status?: string; data?: T; error?: string };
  try {
    answer = JSON.parse(body);
  } catch {
    throw new Error(`Prometheus answers ${response.status}: ${body.slice(0, 200)}`);
  }
  if (answer.status !== 'success') {
    throw new Error(answer.error ?? `Prometheus answers ${response.status}`);
  }
  return answer.data as T;
}
