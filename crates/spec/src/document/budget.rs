//! Limits on the contents of a document, counted after alias expansion.

use crate::document::{
    DEPTH_MAX, DocumentError, DocumentProblem, EXPANDED_BYTES_MAX, Place, VALUES_MAX,
};

#[derive(Debug)]
pub(super) struct Budget {
    values: usize,
    bytes: usize,
}

impl Budget {
    pub(super) const fn new() -> Self {
        Self {
            values: VALUES_MAX,
            bytes: EXPANDED_BYTES_MAX,
        }
    }

    pub(super) fn charge(
        &mut self,
        place: Place,
        values: usize,
        bytes: usize,
    ) -> Result<(), DocumentError> {
        match (
            self.values.checked_sub(values),
            self.bytes.checked_sub(bytes),
        ) {
            (Some(values), Some(bytes)) => {
                self.values = values;
                self.bytes = bytes;
                Ok(())
            }
            _ => Err(DocumentError::new(
                Some(place),
                DocumentProblem::TooMuch {
                    values_max: VALUES_MAX,
                    bytes_max: EXPANDED_BYTES_MAX,
                },
            )),
        }
    }
}

pub(super) fn check_depth(place: Place, depth: usize) -> Result<(), DocumentError> {
    if depth > DEPTH_MAX {
        return Err(DocumentError::new(
            Some(place),
            DocumentProblem::TooDeep {
                depth_max: DEPTH_MAX,
            },
        ));
    }
    Ok(())
}
