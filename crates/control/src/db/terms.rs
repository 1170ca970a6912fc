//! Terms of SQL that differ between the databases, for the tables of the catalog.

/// Differences between the databases.
#[derive(Clone, Copy)]
pub(super) struct DialectTerms {
    /// The type of long texts.
    pub(super) long: &'static str,
    /// The type of bytes, at least 64 KiB of them.
    pub(super) bytes: &'static str,
    /// The text at the end of a table.
    pub(super) options: &'static str,
    /// A table may exist already, and its indexes are created with it.
    pub(super) is_repeated: bool,
}

/// Terms of SQLite.
pub(super) const SQLITE: DialectTerms =
    DialectTerms { long: "TEXT", bytes: "BLOB", options: "", is_repeated: false };

/// Terms of PostgreSQL.
#[cfg(feature = "postgres")]
pub(super) const POSTGRES: DialectTerms = DialectTerms { bytes: "BYTEA", ..SQLITE };

/// Terms of MariaDB and of MySQL. Names and tokens that differ in case, or in spaces at their ends, are
/// not the same, here as elsewhere.
#[cfg(feature = "mysql")]
pub(super) const MARIADB: DialectTerms = DialectTerms {
    long: "MEDIUMTEXT",
    bytes: "BLOB",
    options: "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin",
    is_repeated: true,
};
#[cfg(feature = "mysql")]
pub(super) const MYSQL: DialectTerms = DialectTerms {
    options: "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin",
    ..MARIADB
};
