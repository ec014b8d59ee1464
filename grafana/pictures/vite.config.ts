import { defineConfig } from 'vite';

// Of a build that works: names that are missing here are found by the check of types.
const KNOWN = new Set(['SHIMMED_EXPORT', 'MODULE_LEVEL_DIRECTIVE']);

export default defineConfig({
  define: {
    'process.env.NODE_ENV': '"production"',
    'process.env': '{}',
    global: 'globalThis',
  },
  build: {
    // The page is read from this machine: its size costs less than making it smaller.
    minify: false,
    sourcemap: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 100_000,
    target: 'es2022',
    // Grafana's packages name what only other versions of one another have, and ask before they use it.
    rolldownOptions: {
      shimMissingExports: true,
      checks: { eval: false, pluginTimings: false },
      onLog: (level, log, report) => KNOWN.has(log.code ?? '') || report(level, log),
    },
  },
  // Two copies of one of these would each have a registry, or a theme, of its own.
  resolve: {
    dedupe: [
      'react',
      'react-dom',
      'rxjs',
      '@emotion/css',
      '@emotion/react',
      '@grafana/data',
      '@grafana/runtime',
      '@grafana/ui',
    ],
  },
});
