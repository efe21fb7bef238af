# cmake -DROOT=<tree> -DOUT=<folder> -DPANDOC=<pandoc> -P build.cmake: makes a site of the pages of
# the tree, that works from file:// and asks no other machine for anything. Every x.md becomes
# x.html at the same place, README.md of the tree index.html; the files and folders that they link
# to get listings. OUT must not be there, or be a site.

cmake_minimum_required(VERSION 3.25)
if(EXISTS ${OUT} AND NOT EXISTS ${OUT}/search_index.js)
  message(FATAL_ERROR "site: ${OUT} is there and is no site; expected a folder to make")
endif()
file(REMOVE_RECURSE ${OUT})

function(escape_html text out)
  string(REPLACE "&" "&amp;" text "${text}")
  string(REPLACE "<" "&lt;" text "${text}")
  string(REPLACE ">" "&gt;" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# html_of(<page> <out>): what is made of it.
function(html_of page out)
  string(REGEX REPLACE "[.]md$" ".html" file "${page}")
  if(page STREQUAL "README.md")
    set(file index.html)
  endif()
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# up_of(<path> <out>): from the path's folder to the root, "../../".
function(up_of path out)
  string(REGEX MATCHALL "/" levels "${path}")
  list(LENGTH levels count)
  string(REPEAT "../" ${count} up)
  set(${out} "${up}" PARENT_SCOPE)
endfunction()

# A line of the list of pages: <title> of <page>, as <current> sees it.
function(page_item page title current out)
  html_of(${page} target)
  up_of(${current} up)
  set(mark)
  if(page STREQUAL current)
    set(mark " aria-current=\"page\"")
  endif()
  set(${out} "<li><a href=\"${up}${target}\"${mark}>${title}</a></li>\n" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE pages RELATIVE ${ROOT} ${ROOT}/*.md)
list(FILTER pages EXCLUDE REGEX "^(build|out|third_party/cuda_tools)/|/[.]|^[.]")
list(SORT pages)
set(guides ${pages})
list(FILTER guides INCLUDE REGEX "^docs/")
list(REMOVE_ITEM pages README.md ${guides})
list(PREPEND pages README.md ${guides})
foreach(page IN LISTS pages)
  file(STRINGS ${ROOT}/${page} title_of_${page} REGEX "^# " LIMIT_COUNT 1)
  string(REGEX REPLACE "^# " "" title_of_${page} "${title_of_${page}}")
endforeach()

# What the list beside each page has: not the pages of single measurements, to which their own leads.
set(in_list ${pages})
list(FILTER in_list EXCLUDE REGEX "^bench/results/[^R]")

set(listings)
set(records)
foreach(page IN LISTS pages)
  set(list "<ul>\n")
  foreach(other IN LISTS in_list)
    page_item(${other} "${title_of_${other}}" ${page} item)
    string(APPEND list "${item}")
  endforeach()
  html_of(${page} file)
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${OUT}/${folder})
  execute_process(
    COMMAND ${PANDOC} --from gfm --to html5 --template ${CMAKE_CURRENT_LIST_DIR}/page.html
            --lua-filter ${CMAKE_CURRENT_LIST_DIR}/filter.lua --toc --toc-depth 3
            --metadata root=${ROOT} --metadata page=${page} --metadata records=${OUT}/records
            --metadata listings=${OUT}/listings --metadata images=${OUT}/images
            --variable "pages=${list}</ul>" --output ${OUT}/${file} ${ROOT}/${page}
    ERROR_VARIABLE said RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT said STREQUAL "")
    message(FATAL_ERROR "site: pandoc ended with ${result} over ${page}:\n${said}")
  endif()
  file(READ ${OUT}/records text)
  string(APPEND records "${text}")
  file(STRINGS ${OUT}/listings targets)
  list(APPEND listings ${targets})
  file(STRINGS ${OUT}/images targets)
  foreach(image IN LISTS targets)
    cmake_path(GET image PARENT_PATH folder)
    file(COPY ${ROOT}/${image} DESTINATION ${OUT}/${folder})
  endforeach()
endforeach()
file(REMOVE ${OUT}/records ${OUT}/listings ${OUT}/images)
file(WRITE ${OUT}/search_index.js "const searchIndex = [\n${records}];\n")
file(COPY ${CMAKE_CURRENT_LIST_DIR}/search.js ${CMAKE_CURRENT_LIST_DIR}/site.css DESTINATION ${OUT})

# ---- Listings ----

# listing(<path> <file> <body>): a page without pandoc.
function(listing path file body)
  up_of(${file} up)
  file(WRITE ${OUT}/${file}
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>${path} - Shale</title>\n<link rel=\"stylesheet\" href=\"${up}site.css\">\n"
    "<main>\n<p><a href=\"${up}index.html\">Shale</a></p>\n<h1>${path}</h1>\n${body}"
    "</main>\n</html>\n")
endfunction()

list(REMOVE_DUPLICATES listings)
foreach(path IN LISTS listings)
  if(IS_DIRECTORY ${ROOT}/${path})
    file(GLOB names RELATIVE ${ROOT}/${path} ${ROOT}/${path}/*)
    set(body "<ul>\n")
    foreach(name IN LISTS names)
      string(APPEND body "<li>${name}</li>\n")
    endforeach()
    listing("${path}" "${path}/index.html" "${body}</ul>\n")
  else()
    file(READ ${ROOT}/${path} text)
    escape_html("${text}" text)
    listing("${path}" "${path}.html"
      "<div class=\"scroll\" tabindex=\"0\"><pre><code>${text}</code></pre></div>\n")
  endif()
endforeach()
list(LENGTH pages page_count)
list(LENGTH listings listing_count)
message(STATUS "site: ${page_count} pages, ${listing_count} listings in ${OUT}")
