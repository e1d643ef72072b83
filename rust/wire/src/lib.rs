//! The frame codec: header, sections, acks, authentication, replay window.
