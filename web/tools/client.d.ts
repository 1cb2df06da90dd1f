// Types of what the plugin for Vite imports: `/// <reference types="onnxruntime-ep-wgpu-web/client" />`.

declare module '*?wgpu' {
  const address: string;
  export default address;
}
declare module '*&wgpu' {
  const address: string;
  export default address;
}
