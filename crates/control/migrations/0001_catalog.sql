-- The catalog. One text for all dialects: `{long}` is the type of long texts, `{options}` what ends a
-- table. Times are milliseconds since 1970; truth is 0 or 1; hashes are SHA-256 in hex.

-- One row, which every change locks first: so changes come one after the other, and so do the entries
-- of the audit.
CREATE TABLE head (
  id BIGINT NOT NULL PRIMARY KEY,
  revision BIGINT NOT NULL,
  audit_seq BIGINT NOT NULL,
  audit_hash VARCHAR(64) NOT NULL
) {options};

INSERT INTO head (id, revision, audit_seq, audit_hash)
VALUES (1, 0, 0, '0000000000000000000000000000000000000000000000000000000000000000');

CREATE TABLE accounts (
  id VARCHAR(36) NOT NULL PRIMARY KEY,
  name VARCHAR(128) NOT NULL UNIQUE,
  -- A PHC string of argon2id; none for those who sign in elsewhere only.
  password VARCHAR(255),
  -- Issuer and subject of who signs in elsewhere.
  subject VARCHAR(500) UNIQUE,
  is_admin BIGINT NOT NULL,
  is_disabled BIGINT NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL
) {options};

CREATE TABLE apps (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  description VARCHAR(1000) NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL
) {options};

CREATE TABLE members (
  app VARCHAR(128) NOT NULL,
  account VARCHAR(36) NOT NULL,
  role VARCHAR(16) NOT NULL,
  PRIMARY KEY (app, account),
  FOREIGN KEY (app) REFERENCES apps (name),
  FOREIGN KEY (account) REFERENCES accounts (id)
) {options};

CREATE INDEX members_of_account ON members (account);

-- A deleted policy stays: its name keeps its versions, and nodes learn that it is gone.
CREATE TABLE policies (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  app VARCHAR(128) NOT NULL,
  state VARCHAR(16) NOT NULL,
  version BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  document {long} NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(200) NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(200) NOT NULL,
  FOREIGN KEY (app) REFERENCES apps (name)
) {options};

CREATE INDEX policies_of_app ON policies (app, name);
CREATE INDEX policies_since ON policies (revision);

CREATE TABLE policy_versions (
  policy VARCHAR(128) NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(16) NOT NULL,
  document {long} NOT NULL,
  author VARCHAR(200) NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (policy, version),
  FOREIGN KEY (policy) REFERENCES policies (name)
) {options};

-- Revoked tokens stay, too, until nodes have learned of it.
CREATE TABLE tokens (
  id VARCHAR(36) NOT NULL PRIMARY KEY,
  app VARCHAR(128) NOT NULL,
  name VARCHAR(128) NOT NULL,
  hash VARCHAR(64) NOT NULL UNIQUE,
  scopes VARCHAR(200) NOT NULL,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(200) NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT,
  used_at BIGINT,
  FOREIGN KEY (app) REFERENCES apps (name)
) {options};

CREATE INDEX tokens_of_app ON tokens (app, name);
CREATE INDEX tokens_since ON tokens (revision);

CREATE TABLE sessions (
  hash VARCHAR(64) NOT NULL PRIMARY KEY,
  account VARCHAR(36) NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  source VARCHAR(100) NOT NULL,
  FOREIGN KEY (account) REFERENCES accounts (id)
) {options};

CREATE INDEX sessions_of_account ON sessions (account);
CREATE INDEX sessions_by_age ON sessions (created_at);

-- What was answered to a change that may be asked for again.
CREATE TABLE answers (
  actor VARCHAR(200) NOT NULL,
  name VARCHAR(128) NOT NULL,
  question VARCHAR(64) NOT NULL,
  answer {long} NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (actor, name)
) {options};

CREATE INDEX answers_by_age ON answers (at);

CREATE TABLE nodes (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  software VARCHAR(64) NOT NULL,
  revision BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL
) {options};

CREATE TABLE audit (
  seq BIGINT NOT NULL PRIMARY KEY,
  at BIGINT NOT NULL,
  actor VARCHAR(200) NOT NULL,
  source VARCHAR(100) NOT NULL,
  action VARCHAR(64) NOT NULL,
  app VARCHAR(128),
  target VARCHAR(300) NOT NULL,
  outcome VARCHAR(16) NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  before_change {long},
  after_change {long},
  hash VARCHAR(64) NOT NULL
) {options};

CREATE INDEX audit_of_app ON audit (app, seq);
