//! What a person writes: the manifest, parsed with the place of every value.
