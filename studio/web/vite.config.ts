// Two bundles out of one source: the page that the server serves, and one module for JupyterLab (mode "widget").
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const STATIC = "../src/poolgrad_studio/static";

export default defineConfig(({ mode }) => ({
  plugins: [react()],
  define: mode === "widget" ? { "process.env.NODE_ENV": '"production"' } : {},
  build:
    mode === "widget"
      ? {
          outDir: STATIC,
          emptyOutDir: false,
          copyPublicDir: false,
          lib: { entry: "src/widget.tsx", formats: ["es"], fileName: () => "widget.js", cssFileName: "widget" },
        }
      : {
          outDir: STATIC,
          emptyOutDir: true,
          assetsInlineLimit: 0,
          modulePreload: { polyfill: false },
          license: { fileName: "licenses.txt" },
        },
  test: { environment: "node", include: ["src/**/*.test.ts"] },
}));
