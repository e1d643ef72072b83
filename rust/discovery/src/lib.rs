//! Who the peers are: a static list, a DNS name, a watched file.
