//! Bytes to a frame: total, zero-copy, everything checked before anything is given out.

use crate::error::WireError;
use crate::header::{split_header, Header};
use crate::limits::{MAX_SECTIONS_PER_FRAME, TRAILER_BYTES};
use crate::section::{read_section, Section};
use crate::varint::Cursor;

/// A frame whose every section was checked. Whether it is *believed* is another matter: see the
/// order of checks in the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    sections: &'a [u8],
    unknown: usize,
}

impl<'a> Frame<'a> {
    /// The sections, in the order of the frame.
    pub fn sections(&self) -> Sections<'a> {
        Sections {
            cursor: Cursor::new(self.sections),
        }
    }

    /// How many sections are of kinds this release does not know. To be counted. spec: wire-14
    pub fn unknown_sections(&self) -> usize {
        self.unknown
    }
}

/// Walks the sections of a [`Frame`].
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Sections<'a> {
    type Item = Section<'a>;

    fn next(&mut self) -> Option<Section<'a>> {
        if self.cursor.is_empty() {
            return None;
        }
        let next = next_section(&mut self.cursor);
        debug_assert!(next.is_ok(), "sections were checked by decode");
        next.ok()
    }
}

fn next_section<'a>(c: &mut Cursor<'a>) -> Result<Section<'a>, WireError> {
    let kind = c.u8(WireError::SectionOverrun)?;
    let len = usize::try_from(c.varint()?).map_err(|_| WireError::SectionOverrun)?;
    let body = c.bytes(len, WireError::SectionOverrun)?;
    read_section(kind, body)
}

/// Reads a frame. Total: any bytes give a frame or a named error. Does not look at the MAC:
/// [`crate::KeyRing::verify`] does, before.
///
/// # Errors
/// Any [`WireError`] about form; none of them changed anything.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, WireError> {
    let (header, mut rest) = split_header(bytes)?;
    if header.is_signed() {
        let Some(len) = rest.len().checked_sub(TRAILER_BYTES) else {
            return Err(WireError::TooShort);
        };
        rest = &rest[..len];
    }
    let mut unknown = 0;
    let mut c = Cursor::new(rest);
    let mut sections = 0;
    while !c.is_empty() {
        sections += 1;
        if sections > MAX_SECTIONS_PER_FRAME {
            return Err(WireError::TooManySections);
        }
        match next_section(&mut c)? {
            Section::Unknown { .. } => unknown += 1,
            Section::Hello(_) => {}
            // spec: wire-53
            _ if header.is_introduction() => {
                return Err(WireError::NotIntroduced);
            }
            _ => {}
        }
    }
    Ok(Frame {
        header,
        sections: rest,
        unknown,
    })
}
