//! Any bytes: a named error, or a frame that walks, copies, and encodes to the same bytes.
#![no_main]

use gabion_wire::{
    decode, peek_header, FrameWriter, Section, MAX_FRAME_BYTES, VERSION,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = decode(bytes) else { return };
    assert_eq!(peek_header(bytes), Ok(frame.header));
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let mut w = FrameWriter::new(&mut buf, &frame.header, None).expect("a decoded header writes");
    let mut unknown = 0;
    for section in frame.sections() {
        match section {
            Section::Unknown { .. } => unknown += 1,
            known => w.copy(&known).expect("a decoded section writes"),
        }
    }
    assert_eq!(unknown, frame.unknown_sections());
    let n = w.finish();
    // What this release does not know, and the signature, are not written back.
    if frame.header.version == VERSION && frame.header.flags & !0x0e == 0 && unknown == 0 {
        assert_eq!(&buf[..n], bytes);
    }
});
