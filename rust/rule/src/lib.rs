//! Rules: rates, windows, matching, counter identity, keys, and the policy file.
