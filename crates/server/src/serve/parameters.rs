//! Query parameters, for the table of routes.

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: ParameterKind,
    pub(super) description: &'static str,
}

/// Type of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// A path in the sandbox, required.
    Path,
    /// `true` or `false` (default).
    Switch,
    /// Permission bits.
    Mode,
    Text,
}

pub(super) const fn text(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind: ParameterKind::Text,
        description,
    }
}

pub(super) const fn path_parameter(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: ParameterKind::Path,
        description: "An absolute path in the sandbox; any bytes but NUL, percent-encoded, no `..`.",
    }
}

pub(super) const fn switch(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        kind: ParameterKind::Switch,
        description,
    }
}

pub(super) const MODE: Parameter = Parameter {
    name: "mode",
    kind: ParameterKind::Mode,
    description: "Permission bits, octal; 644 by default.",
};
