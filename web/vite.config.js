import { defineConfig } from "vite";

// The page is served under a policy that allows no inline script or style, so nothing may be inlined.
export default defineConfig({
  base: "/",
  publicDir: "public",
  build: {
    outDir: "../src/windlass/web/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    sourcemap: false,
    reportCompressedSize: false,
  },
});
