// Unpacks compressed texts, and documents that report/html/packing.py wrote.

const KINDS = { float32: Float32Array, uint16: Uint16Array, int32: Int32Array };

async function unpackBytes(id) {
  const text = atob(document.getElementById(id).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

export async function unpackText(id) {
  return new TextDecoder().decode(await unpackBytes(id));
}

export async function unpackDocument(id) {
  const buffer = await unpackBytes(id);
  const length = new DataView(buffer).getUint32(0, true);
  const arrays = 4 + length;
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)), (key, value) =>
    value !== null && value.array in KINDS ? new KINDS[value.array](buffer, arrays + value.at, value.length) : value,
  );
}
