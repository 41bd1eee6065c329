//! The properties of the parsers of hostile bytes, which the tests check too, for libFuzzer.

#[path = "../../tests/parsers/properties/mod.rs"]
mod properties;

/// Declares for each property the function that its program calls.
macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident => $property:ident,)*) => {
        $($(#[$doc])*
        pub fn $name(bytes: &[u8]) {
            properties::$property::check(bytes);
        })*
    };
}

checks! {
    /// A bundle's archive.
    check_archive => archive,
    /// What the process says that unpacks.
    check_archive_answer => archive_answer,
    /// What the kernel records of Landlock.
    check_audit_record => audit_record,
    /// What the child says to the supervisor.
    check_child_status => child_status,
    /// The first message of a TLS connection.
    check_client_hello => client_hello,
    /// A package of Debian's.
    check_deb => deb,
    /// What a name server answers.
    check_dns_answer => dns_answer,
    /// A query of the body.
    check_dns_query => dns_query,
    /// What the process says that parses documents.
    check_document_answer => document_answer,
    /// What the process says that speaks HTTP.
    check_fetcher_answer => fetcher_answer,
    /// A gzip file.
    check_gzip => gzip,
    /// An egress list, and the names that a body asks for.
    check_host_name => host_name,
    /// The head of an HTTP request.
    check_http_head => http_head,
    /// What a registry says of an image.
    check_image_documents => image_documents,
    /// Where an image lies.
    check_image_reference => image_reference,
    /// A layer of an image.
    check_layer => layer,
    /// What the process says that unpacks layers.
    check_layer_answer => layer_answer,
    /// A lock file.
    check_lock_file => lock_file,
    /// A manifest.
    check_manifest => manifest,
    /// What the kernel shows of packets that no listener gets.
    check_observed => observed,
    /// Paths, and how they are joined.
    check_path => path,
    /// What the process says that matches patterns.
    check_pattern_answer => pattern_answer,
    /// What the processes say that read archives without unpacking them, checkouts, and other text.
    check_reader_answer => reader_answer,
    /// What the relay says at its end.
    check_relay_outcome => relay_outcome,
    /// What the relay asks the supervisor for.
    check_relay_request => relay_request,
    /// What the process says that queries name servers.
    check_resolver_answer => resolver_answer,
    /// What is to be run.
    check_run_form => run_form,
    /// What the process says that validates by schemas.
    check_schema_answer => schema_answer,
    /// What the processes say that unpack snapshots and archives of repositories.
    check_snapshot_answer => snapshot_answer,
    /// What a client of the compatibility proxy says.
    check_socks => socks,
    /// Paths with tokens, sizes, durations.
    check_tokens => tokens,
}
