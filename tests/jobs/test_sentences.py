"""The one useful sentence of an error, from the text that Spark makes of it."""

from __future__ import annotations

import pytest

from tidelog_spark.failures import sentence_of

TRACE = "\n\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:9)\nCaused by: java.io.IOException: x"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            f": java.lang.IllegalStateException: Spark context stopped while waiting for backend{TRACE}",
            "Spark context stopped while waiting for backend",
        ),
        (f"An error occurred while calling o7.count.\n: java.lang.StackOverflowError{TRACE}",
         "java.lang.StackOverflowError"),
        (
            "An error occurred while calling o7.count.\n: x\ntidelog.errors.StreamNotFound: no stream a",
            "no stream a",
        ),
        ("\n  a plain error \nmore", "a plain error"),
    ],
    ids=["of Java", "of Java, without a message", "of Tidelog, inside", "any other"],
)  # fmt: skip
def test_the_sentence_of_an_error_is_what_went_wrong(text: str, sentence: str) -> None:
    assert sentence_of(RuntimeError(text)) == sentence
