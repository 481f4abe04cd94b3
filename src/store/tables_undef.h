/* tables_undef.h: ends one use of tables.def; the next defines these macros anew. No include guard.
 */
#undef TABLE
#undef INTEGER
#undef REAL
#undef TEXT
#undef ARRAY
#undef ELEMENT
#undef END
