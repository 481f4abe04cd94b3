/* tables_undef.h: ends one use of tables.def; the next use defines these macros again. No include
 * guard.
 */
#undef TABLE
#undef INTEGER
#undef REAL
#undef TEXT
#undef ARRAY
#undef ELEMENT
#undef END
