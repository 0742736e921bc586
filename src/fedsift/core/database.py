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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from fedsift.core.wanted import FileForm, Loaded, Wanted, Written
from fedsift.errors import DataError, FedsiftError, MissingExtra


def load_query(path: Path, where: str, wanted: Wanted) -> Loaded:
    """The rows of the query that stands in a file; which is first nobody says, so they need ids."""
    asked = _Asked.read(path, where, wanted.form)
    if wanted.id is None:
        raise DataError(f"{where}: the rows of a query have no order: name the column of their ids")
    with asked.failing():
        frame = _rows(asked.query, asked.address, path.parent)
    return Loaded(
        frame.select(wanted.of(frame.columns, where)),
        where,
        _row,
        Written(f"a query, the database in {asked.variable}"),
    )


def batches(path: Path, where: str, form: FileForm, rows: int) -> Iterator[pl.DataFrame]:
    """The same rows, so many at a time."""
    asked = _Asked.read(path, where, form)
    with asked.failing():
        yield from _batches(asked.query, asked.address, path.parent, rows)


@dataclass(frozen=True)
class _Asked:
    """A query, and the database that it is asked of."""

    query: str
    address: str
    variable: str
    where: str

    @classmethod
    def read(cls, path: Path, where: str, form: FileForm) -> _Asked:
        variable = form.database
        if variable is None:
            raise DataError(
                f'{where}: a query needs its database: database = "NAME", the environment variable that holds the '
                "address"
            )
        address = os.environ.get(variable, "").strip()
        if not address:
            raise DataError(
                f"{where}: the environment variable {variable!r} is not set; it holds the address of the database, "
                "such as duckdb:///warehouse.duckdb or postgresql://..."
            )
        try:
            query = path.read_text(encoding="utf-8").strip().rstrip(";")
        except UnicodeDecodeError:
            raise DataError(f"{where}: the query is not written in UTF-8; save it so") from None
        if not query:
            raise DataError(f"{where}: there is no query in the file")
        return cls(query, address, variable, where)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What goes wrong in a database, in words of our own."""
        try:
            yield
        except FedsiftError:
            raise
        except ImportError as error:
            if error.name in ("duckdb", "sqlalchemy"):
                raise MissingExtra(error.name, "sql") from None
            raise DataError(f"{self.where}: the database's driver is not installed: pip install {error.name}") from None
        except Exception as error:  # each driver has errors of its own
            raise DataError(
                f"{self.where}: the query failed ({type(error).__name__}); try it in the database with the account of "
                f"{self.variable}"
            ) from None


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


def _batches(query: str, address: str, folder: Path, rows: int) -> Iterator[pl.DataFrame]:
    kind, _, place = address.partition("://")
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(str(_file(place, folder)), read_only=True) as connection:
            answer = connection.sql(query)
            read = getattr(answer, "to_arrow_reader", None) or answer.fetch_record_batch  # of older releases
            for batch in read(rows):
                yield pl.DataFrame(pa.Table.from_batches([batch]))
        return
    if kind == "sqlite":
        opened = sqlite3.connect(f"{_file(place, folder).as_uri()}?mode=ro", uri=True)
        try:
            yield from pl.read_database(query, opened, iter_batches=True, batch_size=rows, infer_schema_length=None)
        finally:
            opened.close()
        return
    import sqlalchemy

    engine = sqlalchemy.create_engine(address)
    try:
        with engine.connect().execution_options(stream_results=True) as asked:  # not committed: taken back
            yield from pl.read_database(query, asked, iter_batches=True, batch_size=rows, infer_schema_length=None)
    finally:
        engine.dispose()


def _file(place: str, folder: Path) -> Path:
    """``sqlite:///a.db`` is beside the query, ``sqlite:////data/a.db`` where it says; none is made."""
    found = (folder / place.removeprefix("/")).absolute()
    if not found.is_file():
        raise FileNotFoundError
    return found
