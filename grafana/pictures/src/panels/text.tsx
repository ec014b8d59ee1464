import { renderMarkdown, textUtil } from '@grafana/data';

import type { Props } from './plugin';

export function TextPanel({ options, replaceVariables }: Props) {
  const content = replaceVariables(options.content ?? '', {}, options.mode === 'code' ? undefined : 'html');
  if (options.mode === 'code') {
    return <pre style={{ height: '100%', margin: 0 }}>{content}</pre>;
  }
  const html = options.mode === 'html' ? textUtil.sanitizeTextPanelContent(content) : renderMarkdown(content);
  return <div className="markdown-html" style={{ height: '100%' }} dangerouslySetInnerHTML={{ __html: html }} />;
}
