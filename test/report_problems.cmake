# Ends a check of the tree with the list `problems`, a line each, if there are any.
macro(report_problems check)
  if(problems)
    list(JOIN problems "\n" report)
    message(NOTICE "${report}")
    message(FATAL_ERROR "${check}")
  endif()
endmacro()
