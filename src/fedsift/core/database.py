"""Rows of a database: what a query gives. The query stands in a file, the address in the environment alone.

``file = "customers.sql"`` holds one query and ``database = "BANK_DB"`` names the environment variable with the address:
``duckdb:///warehouse.duckdb``, ``sqlite:///customers.db`` or any that SQLAlchemy knows (``postgresql://...``). So no
password stands in a file that is sent around, and no job can name another database than its site's own file does.

The database is asked to write nothing: DuckDB and SQLite are opened for reading, elsewhere what the query did is taken
back. Errors give a driver's kind of error and not its words, which may quote an address or somebody's values.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import polars as pl

from fedsift.core.wanted import Loaded, Wanted, Written
from fedsift.errors import DataError, MissingExtra


def load_query(path: Path, where: str, wanted: Wanted) -> Loaded:
    """The rows of the query that stands in a file; which is first nobody says, so they need ids."""
    variable = wanted.form.database
    if variable is None:
        raise DataError(
            f'{where}: a query needs its database: database = "NAME", the environment variable that holds the address'
        )
    address = os.environ.get(variable, "").strip()
    if not address:
        raise DataError(
            f"{where}: the environment variable {variable!r} is not set; it holds the address of the database, such as "
            "duckdb:///warehouse.duckdb or postgresql://..."
        )
    if wanted.id is None:
        raise DataError(f"{where}: the rows of a query have no order: name the column of their ids")
    try:
        query = path.read_text(encoding="utf-8").strip().rstrip(";")
    except UnicodeDecodeError:
        raise DataError(f"{where}: the query is not written in UTF-8; save it so") from None
    if not query:
        raise DataError(f"{where}: there is no query in the file")
    try:
        frame = _rows(query, address, path.parent)
    except ImportError as error:
        if error.name in ("duckdb", "sqlalchemy"):
            raise MissingExtra(error.name, "sql") from None
        raise DataError(f"{where}: the database's driver is not installed: pip install {error.name}") from None
    except Exception as error:  # each driver has errors of its own
        raise DataError(
            f"{where}: the query failed ({type(error).__name__}); try it in the database with the account of {variable}"
        ) from None
    return Loaded(
        frame.select(wanted.of(frame.columns, where)), where, _row, Written(f"a query, the database in {variable}")
    )


def _row(row: int) -> str:
    return f"row {row} of the answer (the first is 0)"


def _rows(query: str, address: str, folder: Path) -> pl.DataFrame:
    kind, _, place = address.partition("://")
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(str(_file(place, folder)), read_only=True) as connection:
            return pl.DataFrame(connection.sql(query).to_arrow_table())
    if kind == "sqlite":
        opened = sqlite3.connect(f"{_file(place, folder).as_uri()}?mode=ro", uri=True)
        try:
            return pl.read_database(query, opened, infer_schema_length=None)
        finally:
            opened.close()
    import sqlalchemy

    engine = sqlalchemy.create_engine(address)
    try:
        with engine.connect() as asked:  # closed without a commit: what the query did is taken back
            return pl.read_database(query, asked, infer_schema_length=None)
    finally:
        engine.dispose()


def _file(place: str, folder: Path) -> Path:
    """``sqlite:///a.db`` is beside the query, ``sqlite:////data/a.db`` where it says; none is made."""
    found = (folder / place.removeprefix("/")).absolute()
    if not found.is_file():
        raise FileNotFoundError
    return found
